# SPDX-License-Identifier: Apache-2.0
"""`daemon/CONFIGURATION.md`: the prose of `reference.md`, and the keys by which the configuration files are read."""

from __future__ import annotations

import sys

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from vllm_watch.daemon.config.keys import Key, Section, keys_of
from vllm_watch.daemon.config.model import Config
from vllm_watch.daemon.config.web import WebSections


_HEAD = "| key | type | default | example | meaning |\n|---|---|---|---|---|"


def document() -> str:
    """Return the whole document."""
    text = Path(__file__).with_name("reference.md").read_text(encoding="utf-8")
    configuration = [_table(Config), *_sections(Config, "")]
    web_configuration = [_table(WebSections), *_sections(WebSections, "")]
    text = text.replace("{configuration}", "\n".join(configuration))
    return text.replace("{web_configuration}\n", "\n".join(web_configuration))


def _sections(section: type[Section], path: str) -> Iterator[str]:
    """Yield heading and table of each mapping below a section, outer ones first."""
    for name, key in keys_of(section).items():
        if key.section is not None:
            below = f"{path}{name}{'[]' if key.expects.startswith('list') else ''}"
            yield f"## `{below}`\n"
            yield _table(key.section)
            yield from _sections(key.section, f"{below}.")


def _table(section: type[Section]) -> str:
    fields = {field.name: field for field in msgspec.structs.fields(section)}
    rows = [_row(name, key, fields[name]) for name, key in keys_of(section).items() if key.example]
    return "\n".join([_HEAD, *rows]) + "\n"


def _row(name: str, key: Key, field: msgspec.structs.FieldInfo) -> str:
    return f"| `{name}` | {key.expects} | {_default(field)} | `{key.example}` | {key.meaning} |"


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
