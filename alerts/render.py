# SPDX-License-Identifier: Apache-2.0
"""
Writes ``rules/`` from ``source/`` and ``thresholds.yml``, ``gpu-exporters/`` from ``gpu_exporters.yml``, and what the
daemon takes from them: which series each alert needs, for `vllm-watch check`, and what the runbooks say to do first
(``make generate``). The tables of the runbook of `GpuXid` are made of the parsers' table of the kernel's codes.

Prometheus' rules know no constants, and a number that is in two rules is soon two numbers. In ``source/`` a
threshold is written ``%{name}``, and so are two lists of reasons: ``%{probe_not_judged}``, for which a probe's failure
is no finding about the server, and ``%{gpu_failures}``, for which GPUs that could be read are not.
"""

from __future__ import annotations

import json
import sys

from itertools import groupby
from pathlib import Path

from first_steps import first_steps
from gpu_rules import rendered_gpu_rules
from needs import needs

from vllm_watch.analysis.backtest.rule_set import named_in, shipped_sources, shipped_thresholds
from vllm_watch.analysis.backtest.rule_set import rendered as rendered_rules
from vllm_watch_parsers.kernel_messages import XID_ACTIONS, XID_CODES, KernelCode, XidClass


HERE = Path(__file__).parent
NEEDS = HERE.parent / "daemon" / "vllm_watch" / "daemon" / "catalog" / "alert_needs.json"
FIRST_STEPS = HERE.parent / "daemon" / "vllm_watch" / "daemon" / "catalog" / "first_steps.json"
RUNBOOK = HERE / "runbooks" / "GpuXid.md"
HEAD = "# Made by `make generate` from source/{name} and thresholds.yml: change those.\n"

_BEGIN, _END = "<!-- codes -->\n", "<!-- end of codes -->\n"

_ORDER: tuple[XidClass, ...] = (
    "unknown", "follow", "verdict", "check", "update", "vm", "app", "link", "reset", "reboot",
)  # fmt: skip
"""From what needs the least to what needs the most."""


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


def with_tables(text: str) -> str:
    """Return the runbook's text with the tables as they are now."""
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n{_class_table()}\n{_code_table()}\n{_END}{after}"


def _class_table() -> str:
    rows = [f"| `{group}` | {XID_ACTIONS[group]} |\n" for group in _ORDER]
    return "".join(["| class | what to do |\n", "|---|---|\n", *rows])


def _code_table() -> str:
    """Return a row for the codes beside each other that mean the same."""
    rows = []
    for (group, meaning), codes in groupby(XID_CODES, lambda each: (each.group, each.meaning)):
        rows.append(f"| {_code_names(list(codes))} | `{group}` | {meaning} |\n")
    return "".join(["| code | class | what the kernel reports |\n", "|---|---|---|\n", *rows])


def _code_names(codes: list[KernelCode]) -> str:
    return ", ".join(each.code if each.code.isdigit() else f"`{each.code}`" for each in codes)


def main() -> None:
    """Write the rule files, and what the daemon takes from them."""
    written = {HERE / "rules" / name: text for name, text in rendered().items()}
    written |= {HERE / "gpu-exporters" / name: text for name, text in rendered_gpu_rules().items()}
    written[RUNBOOK] = with_tables(RUNBOOK.read_text(encoding="utf-8"))
    written |= {NEEDS: rendered_needs(), FIRST_STEPS: rendered_first_steps()}
    for path, text in written.items():
        path.write_text(text, encoding="utf-8")
        print(path, file=sys.stderr)


if __name__ == "__main__":
    main()
