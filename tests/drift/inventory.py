# SPDX-License-Identifier: Apache-2.0
"""
What one vLLM exports and prints, as facts: no text of its sources but names, formats and numbers.

An inventory is small and sorted, and has no line numbers: a moved line is no change.
"""

from __future__ import annotations

import json
import re

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.drift.families import Family, extract_families, ray_facts, registered_names
from tests.drift.messages import Message, extract_messages
from tests.drift.modules import Project
from tests.drift.reading import understand
from tests.drift.source_tree import DriftError, SourceTree


FOLDER = Path(__file__).parent / "inventories"
"""One inventory for each release of the corpus, and for each that was looked at since."""


@dataclass(frozen=True)
class Inventory:
    """
    The facts of one vLLM.

    Args:
        version: The release, empty where it is not known.
        families: All metric families.
        messages: Statistics, and the messages in which a parser finds something.
        ray: How families get to Ray.
        rust: The names that the Rust front end registers, `None` where its sources are not there.
        other_formats: The formats in which no parser finds anything, to find out what became of one that did; they
            are in no file.
    """

    version: str
    families: tuple[Family, ...]
    messages: tuple[Message, ...]
    ray: tuple[str, ...]
    rust: tuple[str, ...] | None
    other_formats: tuple[str, ...] = ()


def take_inventory(tree: SourceTree) -> Inventory:
    """Return the facts of sources."""
    project = Project(tree.python)
    known, others = [], []
    for message in extract_messages(project):
        if message.is_periodic or understand(message).meanings:
            known.append(message)
        else:
            others.append(message.format)
    families = tuple(extract_families(project))
    if not families and not known:
        raise DriftError(f"{tree.place} constructs no metric and prints no statistics: it is no whole vLLM.")
    rust = registered_names(tree.rust) if tree.rust else None
    return Inventory(tree.version, families, tuple(known), ray_facts(project), rust, tuple(others))


def kept_versions() -> list[str]:
    """Return the releases of which an inventory is kept, the oldest first."""
    return sorted((file.stem for file in FOLDER.glob("*.json")), key=release_key)


def release_key(version: str) -> tuple[int, ...]:
    """Return the numbers of a release, to be compared."""
    return tuple(int(number) for number in re.findall(r"\d+", version.partition("+")[0])[:4])


def baseline_for(version: str) -> str | None:
    """Return the newest release with an inventory that is not newer than a release; an unknown one is the newest."""
    kept = kept_versions()
    older = [each for each in kept if not version or release_key(each) <= release_key(version)]
    return older[-1] if older else None


def read_inventory(file: Path) -> Inventory:
    """Read a kept inventory's file."""
    document = json.loads(file.read_text(encoding="utf-8"))
    return Inventory(
        document["version"],
        tuple(_family(each) for each in document["families"]),
        tuple(_message(each) for each in document["messages"]),
        tuple(document["ray"]),
        None if document["rust"] is None else tuple(document["rust"]),
    )


def written(inventory: Inventory) -> str:
    """Return an inventory as text: JSON with one fact in each line."""
    lines = [f'{{"version": {json.dumps(inventory.version)},', '"families": [']
    lines += _rows([_family_row(family) for family in inventory.families])
    lines += ["],", '"messages": [', *_rows([_message_row(each) for each in inventory.messages]), "],"]
    lines += ['"ray": [', *_joined_lines([json.dumps(fact) for fact in inventory.ray]), "],"]
    return "\n".join([*lines, f'"rust": {json.dumps(inventory.rust)}}}', ""])


def _rows(rows: list[dict[str, Any]]) -> list[str]:
    return _joined_lines(sorted(dict.fromkeys(json.dumps(row, ensure_ascii=False) for row in rows)))


def _joined_lines(texts: list[str]) -> list[str]:
    return [text + ("," if index < len(texts) - 1 else "") for index, text in enumerate(texts)]


def _family_row(family: Family) -> dict[str, Any]:
    row: dict[str, Any] = {"name": family.name, "engine": family.engine, "type": family.type}
    row["labels"] = list(family.labels)
    if family.buckets:
        row["buckets"] = family.buckets if isinstance(family.buckets, str) else list(family.buckets)
    if family.is_hidden:
        row["hidden"] = True
    return row | {"file": family.place.rpartition(":")[0]}


def _family(row: dict[str, Any]) -> Family:
    buckets = row.get("buckets", ())
    return Family(
        row["name"],
        row["engine"],
        row["type"],
        tuple(row["labels"]),
        buckets if isinstance(buckets, str) else tuple(buckets),
        bool(row.get("hidden", False)),
        row["file"] + ":0",
    )


def _message_row(message: Message) -> dict[str, Any]:
    row: dict[str, Any] = {"format": message.format, "level": message.level, "site": message.site}
    if message.is_periodic:
        row["periodic"] = True
    return row


def _message(row: dict[str, Any]) -> Message:
    return Message(row["format"], row["level"], bool(row.get("periodic", False)), row["site"] + ":0")
