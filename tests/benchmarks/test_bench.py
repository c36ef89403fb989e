# SPDX-License-Identifier: Apache-2.0
"""`make bench` prints a table, names what is worse than in the last release, and keeps figures."""

from __future__ import annotations

import pytest

from tests.benchmarks import __main__ as bench
from tests.benchmarks.figures import Figure


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run `make bench` where two benchmarks have the figures that a test says; return the status and the output."""
    monkeypatch.setattr(bench, "KEPT", tmp_path / "figures.json")
    monkeypatch.setattr(bench, "LONG", frozenset({"soak"}))
    monkeypatch.setattr(bench, "TABLES", {})
    monkeypatch.setattr(bench, "CALIBRATIONS", 1)
    monkeypatch.setattr(bench, "LOOPS", 1000)

    def run(*arguments, start=1.0, ratio=5.0):
        benchmarks = {
            "start": lambda: iter([Figure("--version", start, "s", "lower", goal=1.5)]),
            "once": lambda: iter([Figure("against mtail", ratio, "x as fast", "higher")]),
            "soak": lambda: pytest.fail("it is long"),
        }
        monkeypatch.setattr(bench, "BENCHMARKS", benchmarks)
        return bench.main(list(arguments)), capsys.readouterr().out

    return run


def test_without_kept_figures_nothing_is_compared(run):
    """The first run has figures and goals only, and is fine."""
    status, out = run(start=2.0)

    assert 0 == status
    assert "2 s  ≤ 1.5 missed" in out
    assert "worse" not in out


def test_what_is_worse_is_named_at_the_end(run):
    """After a run that was kept, a figure that is worse by more than a fifth is named, and the status is 1."""
    assert 0 == run("--keep")[0]
    status, out = run(start=1.3, ratio=4.5)

    assert 1 == status
    assert out.endswith(f"worse than {bench.__version__}: start: --version 1.3 s ≤ 1.5 +30% worse\n")
    assert 0 == run(start=1.1, ratio=4.5)[0]


def test_what_is_not_measured_is_named(run):
    """A figure that was kept and has no value now is named; that alone is no failure."""
    run("--keep")
    status, out = run(ratio=None)

    assert 0 == status
    assert "not measured: once: against mtail" in out
