# SPDX-License-Identifier: Apache-2.0
"""
Writes ``rules/`` from ``source/`` and ``thresholds.yml``, ``gpu-exporters/`` from ``gpu_exporters.py``, and what the
daemon takes from them: which series each alert needs, for `vllm-watch check`, what the runbooks say to do first, and
the thresholds at which the status page and `top` change a colour (``make generate``).

Prometheus' rules know no constants, and a number that is in two rules is soon two numbers. In ``source/`` a
threshold is written ``%{name}``, and so are two lists of reasons: ``%{probe_not_judged}``, for which a probe's failure
is no finding about the server, and ``%{gpu_failures}``, for which GPUs that could be read are not.
"""

from __future__ import annotations

import json
import sys

from pathlib import Path

from first_steps import first_steps
from gpu_rules import rendered_gpu_rules
from needs import needs
from xid_table import RUNBOOK, with_tables

from vllm_watch.analysis.backtest.rule_set import named_in, shipped_sources, shipped_thresholds
from vllm_watch.analysis.backtest.rule_set import rendered as rendered_rules


HERE = Path(__file__).parent
NEEDS = HERE.parent / "daemon" / "vllm_watch" / "daemon" / "catalog" / "alert_needs.json"
FIRST_STEPS = HERE.parent / "daemon" / "vllm_watch" / "daemon" / "catalog" / "first_steps.json"
STATUS_PAGE = HERE.parent / "daemon" / "vllm_watch" / "daemon" / "web" / "static" / "thresholds.js"
TERMINAL = HERE.parent / "daemon" / "vllm_watch" / "cli" / "terminal" / "thresholds.py"
IN_VIEWS = ("kv_full_ratio",)
HEAD = "# Made by `make generate` from source/{name} and thresholds.yml: change those.\n"


def rendered(**thresholds: str) -> dict[str, str]:
    """
    Return each rule file's text by its name.

    Args:
        thresholds: Those that are not as in ``thresholds.yml``.

    Raises:
        ConfigError: A rule names a threshold that there is not.
    """
    values = {**shipped_thresholds(), **thresholds}
    return {
        name: HEAD.format(name=name) + rendered_rules(text, values, f"source/{name}")
        for name, text in sorted(shipped_sources().items())
    }


def used() -> set[str]:
    """Return the names of the thresholds that rules use."""
    return {name for text in shipped_sources().values() for name in named_in(text)}


def rendered_needs() -> str:
    """Return which series each alert needs, as JSON."""
    return json.dumps(needs(rendered()), indent=1) + "\n"


def rendered_first_steps() -> str:
    """Return what to do first by state, as JSON."""
    return json.dumps(first_steps(shipped_thresholds()["runbooks"]), indent=1, ensure_ascii=False) + "\n"


def rendered_status_page() -> str:
    """Return the thresholds that the status page uses, as a module of JavaScript."""
    values = shipped_thresholds()
    lines = [
        "// SPDX-License-Identifier: Apache-2.0",
        "// Made by `make generate` from alerts/thresholds.yml: change that.",
        "",
        *(f"export const {name.upper()} = {float(values[name])};" for name in IN_VIEWS),
    ]
    return "\n".join(lines) + "\n"


def rendered_terminal() -> str:
    """Return the Python module with the thresholds that the terminal view shows, too."""
    values = shipped_thresholds()
    lines = [
        "# SPDX-License-Identifier: Apache-2.0",
        '"""Made by `make generate` from alerts/thresholds.yml: change that."""',
        "",
        *(f"{name.upper()} = {float(values[name])}" for name in IN_VIEWS),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the rule files, and what the daemon takes from them."""
    written = {HERE / "rules" / name: text for name, text in rendered().items()}
    written |= {HERE / "gpu-exporters" / name: text for name, text in rendered_gpu_rules().items()}
    views = {STATUS_PAGE: rendered_status_page(), TERMINAL: rendered_terminal()}
    written[RUNBOOK] = with_tables(RUNBOOK.read_text(encoding="utf-8"))
    written |= {NEEDS: rendered_needs(), FIRST_STEPS: rendered_first_steps(), **views}
    for path, text in written.items():
        path.write_text(text, encoding="utf-8")
        print(path, file=sys.stderr)


if __name__ == "__main__":
    main()
