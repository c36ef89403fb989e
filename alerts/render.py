# SPDX-License-Identifier: Apache-2.0
"""
Writes ``rules/`` from ``source/`` and ``thresholds.yml``, and what `vllm-watch check` knows about them:
``make generate``.

Prometheus' rules know no constants, and a number that is in two rules is soon two numbers. In ``source/`` a
threshold is written ``%{name}``, and so is ``%{probe_not_judged}``: the reasons for which a probe's failure is no
finding about the server.
"""

from __future__ import annotations

import json
import re
import sys

from pathlib import Path

import yaml

from needs import needs

from vllm_watch.catalog.reasons import NOT_JUDGED


HERE = Path(__file__).parent
NEEDS = HERE.parent / "daemon" / "vllm_watch" / "commands" / "alert_needs.json"
HEAD = "# Made by `make generate` from source/{name} and thresholds.yml: change those.\n"

_PLACE = re.compile(r"%\{(\w+)\}")


def thresholds() -> dict[str, str]:
    """Return every threshold as it is written, and the lists that come from the daemon's catalogue."""
    loaded: dict[str, object] = yaml.load((HERE / "thresholds.yml").read_text(encoding="utf-8"), yaml.BaseLoader)  # noqa: S506 - It makes texts only.
    return {**{name: str(value) for name, value in loaded.items()}, "probe_not_judged": "|".join(NOT_JUDGED)}


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


def rendered_needs() -> str:
    """Return which series each alert needs, as JSON."""
    return json.dumps(needs(rendered()), indent=1) + "\n"


def main() -> None:
    """Write the rule files, and which series each alert needs."""
    for name, text in rendered().items():
        (HERE / "rules" / name).write_text(text, encoding="utf-8")
        print(HERE / "rules" / name, file=sys.stderr)
    NEEDS.write_text(rendered_needs(), encoding="utf-8")
    print(NEEDS, file=sys.stderr)


if __name__ == "__main__":
    main()
