# SPDX-License-Identifier: Apache-2.0
"""
Drift watch: what a vLLM exports and prints that the parsers do not know.

``python -m tests.drift vllm-0.34.0-….whl`` reads a wheel, a folder with an unpacked one, or a checkout, without
importing anything of it. The exit status is 0 if there is nothing to decide about, 1 if there is, 2 for an error.
"""

from __future__ import annotations

import argparse
import gc
import signal
import sys

from collections.abc import Iterable, Sequence

from tests.drift.findings import KINDS, Finding, findings_of
from tests.drift.inventory import FOLDER, Inventory, baseline_for, read_inventory, take_inventory, written
from tests.drift.source_tree import DriftError, SourceTree, open_tree


def main(arguments: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    options = _parser().parse_args(arguments)
    try:
        tree = open_tree(options.source)
        inventory = take_inventory(tree)
    except DriftError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if options.inventory:
        print(written(inventory), end="")
        return 0
    version = baseline_for(inventory.version)
    findings = findings_of(inventory, read_inventory(FOLDER / f"{version}.json") if version is not None else None)
    beside = f", beside {version}" if version is not None else ""
    print(findings_text(f"{_title(options.source, inventory)}{beside}", findings, _notes(tree)))
    return int(bool(findings))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.drift", description="What a vLLM exports and prints that the parsers do not know."
    )
    parser.add_argument("source", help="a wheel, a folder with the package vllm, or a checkout")
    parser.add_argument(
        "--inventory", action="store_true", help="print the facts alone, as they are kept in tests/drift/inventories"
    )
    return parser


def _title(place: str, inventory: Inventory) -> str:
    families = {(family.name, family.engine) for family in inventory.families}
    return (
        f"vLLM {inventory.version or 'of an unknown release'}{'' if place == inventory.version else f' ({place})'}: "
        f"{len(families)} families, {len(inventory.messages)} messages"
    )


def _notes(tree: SourceTree) -> list[str]:
    if tree.rust:
        return []
    if tree.kind == "checkout":
        return [f"{tree.place} has no rust/: its release has no Rust front end, or the checkout is not whole."]
    return [f"{tree.place} has no Rust source, as no wheel has: of the Rust front end a checkout alone tells."]


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
    return "\n".join([*lines, *(line for note in notes for line in ("", f"Note: {note}"))])


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # As other filters end when `head` has seen enough.
    gc.disable()  # To search millions of nodes for garbage takes as long as all the rest.
    sys.exit(main(sys.argv[1:]))
