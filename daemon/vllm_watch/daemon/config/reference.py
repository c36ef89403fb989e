# SPDX-License-Identifier: Apache-2.0
"""
`daemon/CONFIGURATION.md`: `reference.md.template`, with what the code knows of each key.

That are a key's default, and what its value may be where the code has bounds or words for it.
"""

from __future__ import annotations

import re
import sys

from collections.abc import Mapping
from pathlib import Path

import msgspec

from vllm_watch.daemon.config.keys import Section, keys_of
from vllm_watch.daemon.config.model import Config
from vllm_watch.daemon.config.web import WebSections


_FILES: Mapping[str, type[Section]] = {"The file": Config, "The web configuration file": WebSections}
"""The sections of whole files, by their headings; the others' headings are their paths."""

_ROW = re.compile(r"\| `(?P<key>\w+)` \| (?P<expects>.*?) ?\| \| (?P<rest>`.*)")
"""A row of a table of keys, whose default is not written yet."""


def document() -> str:
    """Return the whole document."""
    text = Path(__file__).with_name("reference.md.template").read_text(encoding="utf-8")
    section, lines = None, []
    for line in text.splitlines():
        if line.startswith("## "):
            section = section_of(line.removeprefix("## "))
        row = _ROW.fullmatch(line)
        lines.append(line if section is None or row is None else _filled(section, row))
    return "\n".join([*lines, ""])


def section_of(heading: str) -> type[Section] | None:
    """
    Return the section that a heading names, such as ``The file`` or `` `servers[].metrics` ``, if it names one.

    Of several paths, which are of one section, the first one tells.
    """
    if heading in _FILES or not heading.startswith("`"):
        return _FILES.get(heading)
    first, *names = heading.split("`")[1].replace("[]", "").split(".")
    section = next(keys_of(file)[first].section for file in _FILES.values() if first in keys_of(file))
    for name in names:
        section = section and keys_of(section)[name].section
    return section


def _filled(section: type[Section], row: re.Match[str]) -> str:
    (field,) = [field for field in msgspec.structs.fields(section) if field.name == row["key"]]
    expects = row["expects"] or keys_of(section)[row["key"]].expects
    return f"| `{row['key']}` | {expects} | {_default(field)} | {row['rest']}"


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    default = field.default
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    if isinstance(default, float):
        return f"`{default:g}s`"
    if not default or isinstance(default, Mapping | msgspec.Struct):
        return "-"
    return f"`{default}`"


if __name__ == "__main__":
    sys.stdout.write(document())
