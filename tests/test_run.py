# SPDX-License-Identifier: Apache-2.0
"""What holds of every run of these tests: what it leaves behind, and what it says of tests that it skipped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from pathlib import Path

import pytest

from tests.support.leftovers import VARIABLE, marked
from tests.support.waiting import SECONDS, until


ROOT = Path(__file__).parents[1]
PLUGINS = ("xdist", "tests.support.leftovers", "tests.support.needs", "tests.support.samples")

LONG = """
import os, pathlib, signal, subprocess, sys, time

def test_that_takes_long():
    here = pathlib.Path(__file__).parent
    stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-c", stubborn], start_new_session=True, stdout=subprocess.PIPE)
    child.stdout.readline()
    (here / "new").write_text(os.environ["VLLM_WATCH_TEST_RUN"])
    (here / "new").rename(here / "started")
    time.sleep(600)
"""

NEEDY = """
import pytest

@pytest.mark.needs_tool("no-such-tool")
@pytest.mark.parametrize("number", range(3))
def test_with_a_tool(number):
    pass

@pytest.mark.needs_tool("sh")
def test_with_a_tool_that_is_there():
    pass

def test_of_this_machine():
    pytest.skip("there is no moon")
"""


def small_run(folder, text, *options):
    """Return the command of a run of its own, over one file, without plugins that it does not need."""
    folder.joinpath("pytest.ini").write_text(
        "[pytest]\nmarkers = needs_tool\n needs_module\n needs_root\n needs_namespaces\n"
    )
    folder.joinpath("test_small.py").write_text(text)
    plugins = [word for plugin in PLUGINS for word in ("-p", plugin)]
    alone = ["env", "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1", sys.executable, "-m", "pytest"]
    return [*alone, *plugins, "--rootdir", str(folder), *options, str(folder)]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux")
@pytest.mark.parametrize(
    ("number", "options"),
    [(signal.SIGINT, ()), (signal.SIGTERM, ("--numprocesses=1",)), (signal.SIGKILL, ("--numprocesses=1",))],
    ids=["Ctrl-C", "SIGTERM, with a worker", "SIGKILL, with a worker"],
)
def test_an_interrupted_run_leaves_no_process(tmp_path, number, options):
    """However a run ends, no process of it goes on: also none in a session of its own that ignores SIGTERM."""
    command = small_run(tmp_path, LONG, *options)
    run = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until((tmp_path / "started").exists)
        value = (tmp_path / "started").read_text()
        assert len(list(marked(value))) >= 1
        run.send_signal(number)
        run.wait(SECONDS)

        until(lambda: not list(marked(value)))
    finally:
        run.kill()
        run.wait(SECONDS)
    assert value != os.environ[VARIABLE]


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--numprocesses=1",)], ids=["alone", "with a worker"])
def test_a_run_says_what_it_skipped(tmp_path, monkeypatch, options):
    """It ends with each reason once, how often it was met, and the package that would help."""
    sitecustomize = (
        "from tests.support import tools\ntools.PACKAGES = {**tools.PACKAGES, 'no-such-tool': 'some-package'}\n"
    )
    (tmp_path / "lists.py").write_text(sitecustomize)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    command = small_run(tmp_path, NEEDY, "-p", "lists", *options)
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=SECONDS).stdout

    assert "not tested here" in printed
    assert "    3 tests: needs no-such-tool: apt-get install some-package\n" in printed
    assert "    1 test: there is no moon\n" in printed
    assert "1 passed, 4 skipped" in printed
