# SPDX-License-Identifier: Apache-2.0
"""The child process in a driver that hangs, at its own end and at that of the daemon; and who imports what."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys

from pathlib import Path

import pytest

from tests.gpu.children import child
from tests.support.fake_nvml import Scene, h100
from tests.support.waiting import SECONDS, until

import vllm_watch

from vllm_watch.daemon.gpu import reader as reader_module
from vllm_watch.daemon.gpu.reader import GpuReader
from vllm_watch.daemon.support.clock import SystemClock


DAEMON = Path(vllm_watch.__file__).parent
WORKS = Scene([h100(0)])


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    """Wait only a moment for what does not come."""
    monkeypatch.setattr(reader_module, "PATIENCE", 0.05)


def is_there(pid):
    """Return whether a process is there that has not ended."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def pid_of(reader):
    """Return the process of a reader's child."""
    return reader._child._process.pid


@pytest.mark.parametrize("nth", [1, 10])
def test_a_call_that_hangs_costs_the_daemon_nothing_but_its_reading(fake_nvml, nth):
    """The first call hangs, or the tenth: each report comes, and the next reading when the driver answers again."""
    fake_nvml.show(WORKS.hanging("any", nth))
    reader = GpuReader(SystemClock(), deadline=0.04, first_deadline=0.04)
    try:
        reasons = [reader.report().reason for _ in range(2)]
        pid = pid_of(reader)
        fake_nvml.show(WORKS)
        until(lambda: reader.report().reason == "ok")
        same = pid_of(reader)
    finally:
        reader.close()

    assert reasons == ["call_hangs"] * 2
    assert pid == same
    until(lambda: not Path(f"/proc/{pid}").exists())  # It was waited for, too.


def test_a_daemon_that_ends_leaves_a_hanging_child_alone_which_then_ends_by_itself(fake_nvml):
    """Closing does not wait for a call that hangs, and nothing is killed in it; when it returns the child is gone."""
    fake_nvml.show(WORKS.hanging("nvmlDeviceGetUUID"))
    reader = GpuReader(SystemClock(), first_deadline=0.04)
    reader.report()
    pid = pid_of(reader)
    until(lambda: "nvmlDeviceGetUUID" in fake_nvml.calls())
    reader.close()
    os.kill(pid, signal.SIGTERM)
    reader.close()

    assert is_there(pid)
    fake_nvml.show(WORKS)
    until(lambda: not is_there(pid))


def test_the_child_of_a_daemon_that_was_killed_ends(fake_nvml):
    """However the daemon ends, its child's input does, too, and so the child."""
    fake_nvml.show(WORKS)
    program = (
        "import os, signal\nfrom vllm_watch.daemon.gpu.reader import ReaderProcess\n"
        "process = ReaderProcess(lambda: 0.0)\nprocess.ask()\nprocess.changed.wait()\n"
        "print(process._process.pid, flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=False, timeout=SECONDS
    )

    assert run.returncode == -signal.SIGKILL
    until(lambda: not is_there(int(run.stdout)))


def test_signals_for_the_daemon_do_not_end_the_child(fake_nvml):
    """A terminal's Ctrl-C does not reach it, and SIGTERM, which systemd sends to all of the unit, has no effect."""
    fake_nvml.show(WORKS)
    with child() as started:
        started.read(0)
        pid = started.process._process.pid
        os.kill(pid, signal.SIGTERM)
        assert len(started.read(5)) == 1
        assert os.getsid(pid) == pid


def test_the_child_imports_nothing_of_the_folder_that_the_daemon_was_started_in(fake_nvml, tmp_path, monkeypatch):
    """A file with the name of a module, where somebody starts the daemon, is not run."""
    fake_nvml.show(WORKS)
    for name in ("pynvml", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong one')\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with child() as started:
        assert len(started.read()) == 1


def test_what_a_library_prints_does_not_spoil_the_answer(tmp_path, monkeypatch):
    """A remark without an end stands on a line of its own."""
    (tmp_path / "pynvml.py").write_text(
        "import os\nclass NVMLError(Exception):\n    value = 9\n"
        "def nvmlInit():\n    os.write(1, b'A remark: ')\n    raise NVMLError\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with child() as started:
        started.process.ask()
        until(lambda: started.process.is_over)
        lines = [each.line for each in started.process.take()]

    assert lines == [b"A remark: ", b'{"code":9,"what":"nvmlInit returned 9"}']


def test_a_child_that_prints_without_end_costs_no_memory():
    """Of many lines the last are kept, of a line that is too long a part."""
    programs = ("print('z\\n' * 1000)", f"print('x' * {2 * reader_module.MAX_ANSWER})")
    many, long = (reader_module.ReaderProcess(lambda: 0.0, [sys.executable, "-c", program]) for program in programs)
    until(lambda: many.is_over and long.is_over)
    lines, (cut,) = many.take(), long.take()
    many.close()
    long.close()

    assert (len(lines), lines[-1].line) == (reader_module.MAX_LINES, b"z")
    assert len(cut.line) < reader_module.MAX_ANSWER


def test_only_the_child_imports_the_library():
    """nvidia-ml-py is named in one import of one module, inside a function, and nothing imports that module."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in DAEMON.rglob("*.py")}
    naming = {name: text for name, text in texts.items() if "import pynvml" in text or "from pynvml" in text}
    (function,) = (node for node in ast.parse(naming["child.py"]).body if "pynvml" in ast.dump(node))
    program = "import sys, vllm_watch.daemon.gpu.reader, vllm_watch.cli.command_line; sys.exit('pynvml' in sys.modules)"

    assert (list(naming), type(function)) == (["child.py"], ast.FunctionDef)
    assert [] == [
        name
        for name, text in texts.items()
        if "gpu.child import" in text or "import vllm_watch.daemon.gpu.child" in text
    ]
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=SECONDS).returncode == 0
