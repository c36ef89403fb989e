# SPDX-License-Identifier: Apache-2.0
"""Findings and changes as text for a maintainer, and as JSON."""

from __future__ import annotations

import json

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from tests.drift.changes import Change
from tests.drift.findings import KINDS, Finding


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
