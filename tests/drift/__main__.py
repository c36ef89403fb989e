# SPDX-License-Identifier: Apache-2.0
"""
Drift watch: what a vLLM exports and prints that the parsers do not know.

``python -m tests.drift vllm-0.34.0-….whl`` reads a wheel, a folder with an unpacked one, or a checkout, without
importing anything of it. The exit status is 0 if there is nothing to decide about, 1 if there is, 2 for an error.
"""

from __future__ import annotations

import argparse
import gc
import json
import signal
import sys

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from tests.drift.changes import Change, changes_between
from tests.drift.findings import KINDS, Finding, findings_of
from tests.drift.inventory import FOLDER, Inventory, baseline_for, open_inventory, read_inventory, written
from tests.drift.source_tree import DriftError, SourceTree


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    options = _parser().parse_args(arguments)
    try:
        inventory, tree = open_inventory(options.source)
        if options.inventory:
            print(written(inventory), end="")
            return 0
        if options.against is not None:
            return _compare(options, inventory, tree)
        return _judge(options, inventory, tree)
    except DriftError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.drift", description="What a vLLM exports and prints that the parsers do not know."
    )
    parser.add_argument("source", help="a wheel, a folder with the package vllm, a checkout, or a kept release: 0.33.0")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--against", metavar="OTHER", help="list what differs from OTHER, which is the older one")
    instead.add_argument(
        "--inventory", action="store_true", help="print the facts alone, as they are kept in tests/drift/inventories"
    )
    return parser


def _judge(options: argparse.Namespace, inventory: Inventory, tree: SourceTree | None) -> int:
    """Report what is not known, beside the newest release that is kept and not newer."""
    version = baseline_for(inventory.version)
    baseline = read_inventory(FOLDER / f"{version}.json") if version is not None else None
    findings = findings_of(inventory, baseline)
    notes = _notes(tree)
    if options.format == "json":
        print(findings_json(options.source, inventory.version, version or "", findings, notes))
    else:
        beside = f", beside {version}" if version is not None else ""
        print(findings_text(f"{_title(options.source, inventory)}{beside}", findings, notes))
    return int(bool(findings))


def _compare(options: argparse.Namespace, inventory: Inventory, tree: SourceTree | None) -> int:
    other, other_tree = open_inventory(options.against)
    changes = changes_between(other, inventory)
    notes = dict.fromkeys([*_notes(tree), *_notes(other_tree)])
    if options.format == "json":
        print(changes_json(options.source, inventory.version, other.version or options.against, changes, notes))
    else:
        title = f"{_title(options.source, inventory)} against {_title(options.against, other)}"
        print(changes_text(title, changes, notes))
    return int(bool(changes))


def _title(place: str, inventory: Inventory) -> str:
    families = {(family.name, family.engine) for family in inventory.families}
    return (
        f"vLLM {inventory.version or 'of an unknown release'}{'' if place == inventory.version else f' ({place})'}: "
        f"{len(families)} families, {len(inventory.messages)} messages"
    )


def _notes(tree: SourceTree | None) -> list[str]:
    if tree is None or tree.rust:
        return []
    if tree.kind == "checkout":
        return [f"{tree.place} has no rust/: its release has no Rust front end, or the checkout is not whole."]
    return [f"{tree.place} has no Rust source, as no wheel has: of the Rust front end a checkout alone tells."]


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # As other filters end when `head` has seen enough.
    gc.disable()  # To search millions of nodes for garbage takes as long as all the rest.
    sys.exit(main(sys.argv[1:]))


def findings_text(title: str, findings: Sequence[Finding], notes: Iterable[str]) -> str:
    """Return the report on one vLLM."""
    lines = [title]
    for kind, heading in KINDS.items():
        of_kind = [finding for finding in findings if finding.kind == kind]
        if of_kind:
            lines += ["", f"{heading}: {len(of_kind)}"]
        for finding in of_kind:
            lines.append(f"  {finding.subject}" + (f"    [{finding.place}]" if finding.place else ""))
            lines += [f"      {detail}" for detail in finding.details]
    if not findings:
        lines += ["", "The parsers know all of it."]
    return "\n".join([*lines, *_noted(notes)])


def changes_text(title: str, changes: Sequence[Change], notes: Iterable[str]) -> str:
    """Return the report on what differs between two."""
    lines = [title]
    for kind, of_kind in groupby(changes, key=lambda change: change.kind):
        each = list(of_kind)
        lines += ["", f"{kind}: {len(each)}"]
        for change in each:
            lines.append(f"  {change.subject}")
            is_whole = change.subject in {change.before, change.after}
            if change.before and not is_whole:
                lines.append(f"      before: {change.before}")
            if change.after and change.after != change.subject:
                lines.append(f"      now:    {change.after}")
    if not changes:
        lines += ["", "Nothing differs."]
    return "\n".join([*lines, *_noted(notes)])


def findings_json(source: str, version: str, baseline: str, findings: Sequence[Finding], notes: Iterable[str]) -> str:
    """Return the report on one vLLM as JSON."""
    return _json(source, version, baseline, notes, findings=[asdict(each) for each in findings])


def changes_json(source: str, version: str, against: str, changes: Sequence[Change], notes: Iterable[str]) -> str:
    """Return the report on what differs between two as JSON."""
    return _json(source, version, against, notes, changes=[asdict(each) for each in changes])


def _json(source: str, version: str, against: str, notes: Iterable[str], **found: list[dict[str, Any]]) -> str:
    document = {"source": source, "version": version, "against": against, **found, "notes": list(notes)}
    return json.dumps(document, indent=2, ensure_ascii=False)


def _noted(notes: Iterable[str]) -> list[str]:
    return [line for note in notes for line in ("", f"Note: {note}")]
