# SPDX-License-Identifier: Apache-2.0
"""
What a test needs beside Python, and what a run did not test because it was not there.

The markers are those of pyproject.toml. A test that cannot run here is skipped with a reason that names what is missing
and how to get it, and the run ends with the number of tests for each reason.
"""

from __future__ import annotations

import functools
import importlib.util
import os

from collections import Counter
from collections.abc import Iterator, Mapping

import pytest

from tests.support import tools
from tests.support.processes import run_command


MODULES: Mapping[str, str] = {
    "atheris": "pip install --group fuzz",
    "axe_core_python": "pip install --group pages",
    "check_jsonschema": "pip install --group deploy",
    "grafana_client": "pip install '.[grafana]'",
    "grafana_foundation_sdk": "pip install --group dashboards, with Python 3.11 or newer",
    "hatchling": "pip install --group deploy",
    "jsonschema": "pip install --group deploy",
    "kubernetes_validate": "pip install --group deploy",
    "playwright": "pip install --group pages",
}
"""How to get each module that some tests need and the group `test` does not bring."""

FIXTURES: Mapping[str, pytest.MarkDecorator] = {
    "authority": pytest.mark.needs_tool("openssl"),
    "certificates": pytest.mark.needs_tool("openssl"),
    "fake_nvml": pytest.mark.needs_tool("cc"),
    "prometheus": pytest.mark.needs_tool("prometheus", "promtool"),
}
"""What a fixture needs, and every test that uses it."""


@functools.cache
def may_unshare(*namespaces: str) -> bool:
    """Whether this machine gives a process namespaces of its own, e.g. ``--net``."""
    program = tools.find("unshare")
    if program is None:
        return False
    ran = run_command(program, *namespaces, "true", text=False)
    return ran.returncode == 0


def without(name: str) -> str:
    """Return why a test is skipped that needs a module, for `pytest.importorskip`, too."""
    return f"needs {name}: {MODULES[name]}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by the fixtures that they use, so that they can be selected, too."""
    for item in items:
        for fixture in FIXTURES.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(FIXTURES[fixture])


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that cannot run here."""
    reason = next(_missing(item), None)
    if reason is not None:
        pytest.skip(reason)


def _missing(item: pytest.Item) -> Iterator[str]:
    for marker in item.iter_markers("needs_tool"):
        yield from (f"needs {tool}: {tools.source(tool)}" for tool in marker.args if tools.find(tool) is None)
    for marker in item.iter_markers("needs_module"):
        yield from (without(name) for name in marker.args if importlib.util.find_spec(name) is None)
    if item.get_closest_marker("needs_root") and os.geteuid() != 0:
        yield "needs root"
    for marker in item.iter_markers("needs_namespaces"):
        if not may_unshare(*marker.args):
            yield f"needs a machine that allows `unshare {' '.join(marker.args)}`"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was not tested, and why."""
    counts = Counter(_reason(report) for report in terminalreporter.stats.get("skipped", ()))
    if counts:
        terminalreporter.section("not tested here")
        for reason, count in counts.most_common():
            terminalreporter.line(f"{count:5} {'test' if count == 1 else 'tests'}: {reason}")


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    reason = reason.removeprefix("Skipped: ")
    return f"{reason} (all of {report.nodeid})" if isinstance(report, pytest.CollectReport) else reason
