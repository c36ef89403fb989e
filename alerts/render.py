# SPDX-License-Identifier: Apache-2.0
"""
Writes ``rules/`` from ``source/`` and ``thresholds.yml``, and what the daemon takes from them: which series each alert
needs, for `vllm-watch check`, and the thresholds at which the status page changes a colour (``make generate``).

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
STATUS_PAGE = HERE.parent / "daemon" / "vllm_watch" / "web" / "static" / "thresholds.js"
ON_STATUS_PAGE = ("kv_full_ratio",)
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


def rendered_status_page() -> str:
    """Return the thresholds that the status page uses, as a module of JavaScript."""
    values = thresholds()
    lines = [
        "// SPDX-License-Identifier: Apache-2.0",
        "// Made by `make generate` from alerts/thresholds.yml: change that.",
        "",
        *(f"export const {name.upper()} = {float(values[name])};" for name in ON_STATUS_PAGE),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the rule files, and what the daemon takes from them."""
    written = {HERE / "rules" / name: text for name, text in rendered().items()}
    for path, text in {**written, NEEDS: rendered_needs(), STATUS_PAGE: rendered_status_page()}.items():
        path.write_text(text, encoding="utf-8")
        print(path, file=sys.stderr)


if __name__ == "__main__":
    main()
