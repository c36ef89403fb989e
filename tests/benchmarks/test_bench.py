# SPDX-License-Identifier: Apache-2.0
"""`make bench` prints a table, names what is worse than in the last release, and keeps figures."""

from __future__ import annotations

import signal
import subprocess
import sys

from pathlib import Path

import msgspec
import pytest

from tests.benchmarks import __main__ as bench
from tests.benchmarks.figures import Figure, Kept
from tests.support.waiting import until


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


def test_one_benchmark_is_kept_alone_only_beside_others_of_the_same_run(run, capsys):
    """Keeping one takes a file of this version and machine, and leaves the others in it as they were."""
    with pytest.raises(SystemExit) as left:
        run("--keep", "once")
    assert 2 == left.value.code
    assert "keep a whole run" in capsys.readouterr().err

    run("--keep")
    run("--keep", "once", ratio=9.0, start=7.0)
    kept = msgspec.json.decode(bench.KEPT.read_bytes(), type=Kept).benchmarks

    assert 9.0 == kept["once"].figures["against mtail"]
    assert 1.0 == kept["start"].figures["--version"]


def test_what_is_measured_ends_with_the_benchmark():
    """Whoever ends `make bench` ends the programs that it has started as well."""
    script = """
import sys
from tests.benchmarks import __main__ as bench
from tests.benchmarks.programs import Server, run_to_end
def measure():
    with Server(['sleep', '600']):
        run_to_end(['sleep', '600'])
    yield
bench.CALIBRATIONS = 1
bench.BENCHMARKS = {"once": measure}
sys.exit(bench.main(["once"]))
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.DEVNULL) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        try:
            found = until(lambda: len(text := children.read_text().split()) == 2 and text)
            # Python cannot end what it has not yet finished to start: it waits, for a program that runs.
            until(lambda: all(Path(f"/proc/{child}/comm").read_text() == "sleep\n" for child in found))
            until(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "S")
        finally:
            process.terminate()

    assert 128 + signal.SIGTERM == process.returncode
    assert not any(Path(f"/proc/{child}").exists() for child in found)
