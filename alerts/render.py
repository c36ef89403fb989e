# SPDX-License-Identifier: Apache-2.0
"""
Writes ``rules/`` from ``source/`` and ``thresholds.yml``: ``make alerts``.

Prometheus' rules know no constants, and a number that stands in two rules is soon two numbers. In ``source/`` a
threshold is written ``%{name}``.
"""

from __future__ import annotations

import re
import sys

from pathlib import Path

import yaml


HERE = Path(__file__).parent
HEAD = "# Made by `make alerts` from source/{name} and thresholds.yml: change those.\n"

_PLACE = re.compile(r"%\{(\w+)\}")


def thresholds() -> dict[str, str]:
    """Return every threshold as it is written."""
    loaded: dict[str, object] = yaml.load((HERE / "thresholds.yml").read_text(encoding="utf-8"), yaml.BaseLoader)  # noqa: S506  # It makes texts only.
    return {name: str(value) for name, value in loaded.items()}


def rendered() -> dict[str, str]:
    """
    Return each rule file's text by its name.

    Raises:
        KeyError: A rule names a threshold that there is not.
    """
    values = thresholds()
    return {
        path.name: HEAD.format(name=path.name)
        + _PLACE.sub(lambda place: values[place[1]], path.read_text(encoding="utf-8"))
        for path in sorted((HERE / "source").glob("*.yml"))
    }


def used() -> set[str]:
    """Return the names of the thresholds that rules use."""
    return {
        name for path in (HERE / "source").glob("*.yml") for name in _PLACE.findall(path.read_text(encoding="utf-8"))
    }


def main() -> None:
    """Write the rule files."""
    for name, text in rendered().items():
        (HERE / "rules" / name).write_text(text, encoding="utf-8")
        print(HERE / "rules" / name, file=sys.stderr)


if __name__ == "__main__":
    main()
