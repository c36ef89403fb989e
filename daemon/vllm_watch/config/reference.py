# SPDX-License-Identifier: Apache-2.0
"""`daemon/CONFIGURATION.md`, made from the tables by which the configuration files are read."""

from __future__ import annotations

import sys

from collections.abc import Iterator, Mapping

import msgspec

from vllm_watch.config.config_file import CONFIGURATION
from vllm_watch.config.section import Key, Section
from vllm_watch.config.web import WEB_CONFIGURATION


_INTRODUCTION = """\
# Configuration

Made from the code (`make generate`); a test checks that they agree, and that each example is accepted.

`vllm-watch run --config FILE` reads one YAML file. `vllm-watch check --config FILE` checks it. Unknown keys, duplicate
keys, anchors and tags are errors; each message names file, line and key.

* Durations are written `500ms`, `5s`, `2m`, `1h`, or as a number of seconds.
* A relative path starts in the folder of the file that names it.
* Secrets are never in the file, only the names of files that hold them.
* "required" means that the mapping around the key is rejected without it. "-" means that the key has no default.

SIGHUP reads the file and `servers_dir` again. If anything in them is wrong, the old configuration stays. Servers that
did not change continue undisturbed. A change of `listen`, `allowed_hosts`, `checkpoint` or the path `web_config_file`
needs a restart. The web configuration file and the certificates that it names are read again at SIGHUP, and when one of
them changes; if anything in them is wrong, the old ones stay.
"""
_WEB = """\
## The web configuration file

The file that `web_config_file` names, in the format of Prometheus' exporter-toolkit. Keys of that format that
vllm-watch cannot honour are rejected, never ignored.
"""
_HEAD = "| key | type | default | example | meaning |\n|---|---|---|---|---|"


def document() -> str:
    """Return the whole document."""
    parts = [_INTRODUCTION, "## The file\n", _table(CONFIGURATION), *_sections(CONFIGURATION, "")]
    parts += [_WEB, _table(WEB_CONFIGURATION), *_sections(WEB_CONFIGURATION, "")]
    return "\n".join(parts)


def _sections(section: Section, path: str) -> Iterator[str]:
    """Yield heading and table of each mapping below a section, outer ones first."""
    for name, key in section.keys.items():
        if key.section is not None:
            below = f"{path}{name}{'[]' if key.expects.startswith('list') else ''}"
            yield f"## `{below}`\n"
            yield _table(key.section)
            yield from _sections(key.section, f"{below}.")


def _table(section: Section) -> str:
    fields = {field.name: field for field in msgspec.structs.fields(section.of)}
    rows = [_row(name, key, fields[name]) for name, key in section.keys.items() if key.example]
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
