# SPDX-License-Identifier: Apache-2.0
"""What commands write is there whole or not at all, never in place of what they read; its ending is of a format."""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import sys

import pytest

from tests.support.command_line import vllm_watch
from tests.support.recordings import RECORDINGS, log_file
from tests.support.waiting import SECONDS

from vllm_watch.cli.commands.backfill import write_backfill
from vllm_watch.cli.commands.output_formats import comparison_format, report_format
from vllm_watch.daemon.exposition.time_series_file import TimeSeriesFile
from vllm_watch.daemon.support.errors import FileError, UsageError


COMMAND = [sys.executable, "-m", "vllm_watch"]
LOG = str(log_file("dp1"))


def backfill(output):
    """Write what a log becomes into a file."""
    return write_backfill([LOG], 60.0, str(output), lambda _share: None)


@pytest.mark.parametrize("before", [None, "old"])
@pytest.mark.parametrize("problem", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_a_backfill_that_ends_early_leaves_nothing_behind(monkeypatch, tmp_path, before, problem):
    """Interrupted, or on a full disk, it leaves what was there before, and nothing beside it."""

    def texts(_self):
        yield "# TYPE x gauge\n"
        raise problem

    output = tmp_path / "series.om"
    if before is not None:
        output.write_text(before)
    monkeypatch.setattr(TimeSeriesFile, "texts", texts)

    with pytest.raises((KeyboardInterrupt, FileError)):
        backfill(output)

    assert [each.read_text() for each in tmp_path.iterdir()] == ([] if before is None else [before])


WAITS_WHILE_WRITING = """
import select, sys
from pathlib import Path
from vllm_watch.daemon.support.whole_file import whole_file
with whole_file(Path(sys.argv[1])) as file:
    file.write(b"half")
    print("writing", flush=True)
    while not select.select([sys.stdin], [], [], 0.1)[0]:
        pass
"""
"""It waits in short pieces: Python handles a signal that comes just before a call after that call."""


def half_written(output):
    """Return a process that has begun to write a file, and goes on when it gets a line."""
    command = [sys.executable, "-c", WAITS_WHILE_WRITING, str(output)]
    started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert started.stdout.readline() == "writing\n"
    assert [each.suffix for each in output.parent.iterdir()] == [".part"]
    return started


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_writing_leaves_nothing_behind(tmp_path, number):
    """The process ends by the signal, as its parent expects, and what was half written is gone."""
    with half_written(tmp_path / "out.html") as started:
        started.send_signal(number)

        assert started.wait(SECONDS) == -number
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_backfill_without_room_is_said(tmp_path):
    """If the file cannot grow, that is one sentence and exit 1, and there is no file."""
    done = subprocess.run(
        [*COMMAND, "backfill", LOG, "--step", "1s", "-o", tmp_path / "series.om"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000)),
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("vllm-watch: ")
    assert "cannot be written: File too large" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["x.pdf", "x.docx", "folder.d/x.HTMLX", "x.json.gz"])
@pytest.mark.parametrize("format_of", [report_format, comparison_format])
def test_an_ending_of_no_format_is_an_error(format_of, name):
    """It names the formats that there are; with --format any name is fine."""
    with pytest.raises(UsageError, match=r"^-o .*: no format has the ending \.\w+: use one of \.html, .*--format$"):
        format_of(None, name)

    assert format_of("json", name) == "json"


@pytest.mark.parametrize("name", [None, "x", "folder.d/x", "x.txt", "x.TXT", ".hidden"])
def test_without_an_ending_it_is_text(name):
    """Standard output and files without an ending are text, which of a comparison is a table."""
    assert (report_format(None, name), comparison_format(None, name)) == ("text", "text")


@pytest.mark.slow
@pytest.mark.parametrize("command", ["report", "compare", "advise"])
def test_a_wrong_ending_is_said_before_anything_is_read(tmp_path, command):
    """The sources may be large: neither is opened, and the exit status is that of wrong usage."""
    done = vllm_watch(command, "/no/such/a", "/no/such/b", "-o", tmp_path / "x.pdf")

    assert (done.returncode, done.stdout) == (2, "")
    assert "no format has the ending .pdf" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def log(tmp_path):
    """A log in a folder of its own, a link to it, and another name of it."""
    file = tmp_path / "vllm.log"
    shutil.copy(LOG, file)
    (tmp_path / "link.json").symlink_to(file)
    (tmp_path / "same.json").hardlink_to(file)
    (tmp_path / "config.yml").write_text(f"servers: [{{name: a, log: {tmp_path!s}/*.log}}]\n")
    return file


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        ("backfill vllm.log", "vllm.log"),
        ("backfill vllm.log", "link.json"),
        ("backfill vllm.log", "same.json"),
        ("backtest vllm.log", "vllm.log"),
        ("report --format html vllm.log", "vllm.log"),
        ("report .", "link.json"),
        ("compare --format html A=vllm.log B=other.json", "same.json"),
        ("advise --format html vllm.log", "vllm.log"),
        ("record --force --for 1s --log vllm.log", "vllm.log"),
        ("record --force --for 1s --log *.log", "link.json"),
        ("record --force --for 1s --config config.yml", "same.json"),
    ],
)
def test_no_output_takes_the_place_of_an_input(monkeypatch, log, arguments, output):
    """F3: by whatever name a log is given for the output, that is one sentence and exit 2, and the log is as before."""
    monkeypatch.chdir(log.parent)
    (log.parent / "other.json").write_text("{}")
    before = log.read_bytes()
    done = vllm_watch(*arguments.split(), "-o", output)

    assert (done.returncode, done.stdout, log.read_bytes()) == (2, "", before)
    assert re.fullmatch(rf"vllm-watch: -o {output}: \S+ is read and would be lost: give another file\n", done.stderr)


@pytest.mark.parametrize("option", ["-o", "--save-capacity"])
def test_no_recording_is_written_over(tmp_path, option):
    """F3: a recording is an input, too, for each option that names an output."""
    file = tmp_path / "recording"
    shutil.copy(RECORDINGS["dp1"], file)
    before = file.read_bytes()
    done = vllm_watch("report", file, option, file)

    assert (done.returncode, file.read_bytes()) == (2, before)
    assert done.stderr == f"vllm-watch: {option} {file}: {file} is read and would be lost: give another file\n"


@pytest.mark.parametrize("command", ["report", "compare", "advise", "backtest", "backfill", "once --log"])
def test_a_name_that_is_too_long_is_one_sentence(command):
    """F6: several names in one pair of quotes make a name that no file can have: exit 1, and no traceback."""
    name = "a.log " * 60
    done = vllm_watch(*command.split(), name, *([name] if command == "compare" else []))

    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"vllm-watch: (a\.log )+: .*File name too long\n", done.stderr)


@pytest.mark.parametrize("command", ["report", "backfill", "once --log"])
def test_a_file_that_cannot_be_read_is_one_sentence(command):
    """F6: a disk error while a file is read is said with the file's name, and no traceback."""
    done = vllm_watch(*command.split(), "/proc/self/mem")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "vllm-watch: /proc/self/mem: cannot be read: Input/output error\n"


def test_ctrl_c_while_the_command_line_is_imported(tmp_path):
    """F6: a Ctrl-C in the first tenths of a second is what it is later: one word, and no traceback."""
    (tmp_path / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    done = subprocess.run(
        [sys.executable, "-m", "vllm_watch", "--help"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert (done.returncode, done.stdout, done.stderr) == (1, "", "Aborted!\n")
