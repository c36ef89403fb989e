# SPDX-License-Identifier: Apache-2.0
"""What the daemon and its commands write for people: a stranger's text in it commands no terminal."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import time

import pytest

from tests.parsers.lines import STATS_MESSAGE, TIME, record
from tests.support.waiting import SECONDS

from vllm_watch.daemon.support.printable import ascii_json, printable


pytestmark = pytest.mark.slow


HOSTILE = "\x1b[2J\x1b]0;title\x07\x9b31m\u202eevil\u2066\u200b\r\x7f\x00\u2028\ud800"
ESCAPED = "\\x1b[2J\\x1b]0;title\\x07\\x9b31m\\u202eevil\\u2066\\u200b\\r\\x7f\\x00\\u2028\\ud800"
COLOURS = re.compile(r"\x1b\[[0-9;]*m")

MAIN = "from vllm_watch.cli.command_line import main; main()"
SAYS = """
import logging, structlog, sys
from vllm_watch.daemon.support.logging_setup import configure_log
configure_log()
hostile = {hostile!r}
log = structlog.get_logger("x")
log.warning("said", path=hostile, names=[hostile], of={{hostile: 1}}, error=ValueError(hostile))
log.info(hostile)
try:
    raise ValueError(hostile)
except ValueError:
    log.exception("failed")
logging.getLogger("urllib3").error("a library says %s", hostile)
logging.getLogger("watchdog.observers.inotify").error("of no account")
"""


def run(command, stderr, until=(), folder=None):
    """Run a program until it has written some words, or to its end; return its standard error, a pipe or a terminal."""
    mine, theirs = os.openpty() if stderr == "terminal" else os.pipe()
    process = subprocess.Popen(command, stderr=theirs, stdin=subprocess.DEVNULL, cwd=folder)
    os.close(theirs)
    output = b""
    try:
        for piece in pieces(mine):
            output += piece
            if until and all(word in output for word in until):
                process.terminate()
        return output
    finally:
        os.close(mine)
        process.kill()
        process.wait(SECONDS)


def pieces(descriptor):
    """Yield what comes out of a pipe or terminal until its program is gone."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        if select.select([descriptor], [], [], 0.1)[0]:
            try:
                piece = os.read(descriptor, 65536)
            except OSError:  # A terminal's end.
                return
            if not piece:
                return
            yield piece


def commands_of(output):
    """Return the characters of an output that a terminal acts upon, colours and line ends aside."""
    text = COLOURS.sub("", output.decode())
    return {char for char in text.replace("\r\n", "\n") if not char.isprintable() and char != "\n"}


@pytest.mark.parametrize("stderr", ["pipe", "terminal"])
def test_the_log_of_the_daemon_commands_no_terminal(stderr):
    """I4: control, bidirectional and invisible characters and colours in any field are escaped, on both ways out."""
    output = run([sys.executable, "-c", SAYS.format(hostile=HOSTILE)], stderr)

    assert set() == commands_of(output)
    assert b"evil" in output
    assert b"\x1b[2J" not in output
    assert "\\u202e" in output.decode()
    if stderr == "pipe":
        said = [json.loads(line) for line in output.splitlines()]
        assert [HOSTILE, HOSTILE] == [said[0]["path"], said[1]["event"]]
        assert ("urllib3", f"a library says {HOSTILE}") == (said[-1]["logger"], said[-1]["event"])
        assert output.isascii()
    else:
        assert ESCAPED in output.decode()


@pytest.mark.parametrize("stderr", ["pipe", "terminal"])
def test_a_hostile_log_says_nothing_in_the_daemon_s(tmp_path, stderr):
    """I4: a real daemon over hostile lines, in files with hostile names, writes nothing that a terminal obeys."""
    hostile = HOSTILE.replace("\x00", "").replace("\ud800", "")
    folder = tmp_path / "logs"
    folder.mkdir()
    for name in ("a", f"b{hostile}\nc"):
        lines = [record(f"Received request {hostile}", "logger.py"), hostile.encode(), record(STATS_MESSAGE)]
        lines += [f"INFO {TIME} [api_server.py:1] vLLM API server version 1.0{hostile}".encode()]
        (folder / f"vllm-{name}.log").write_bytes(b"\n".join(lines) + b"\n")
    pattern = json.dumps(f"{folder}/vllm-*")
    checkpoint = json.dumps(str(folder))
    (tmp_path / "config.yml").write_text(
        f"listen: 127.0.0.1:0\ncheckpoint: {checkpoint}\nservers:\n- {{name: a, log: {pattern}}}\n"
    )

    words = (b"service.started", b"source.changed", b"checkpoint.failed")
    output = run([sys.executable, "-c", MAIN, "run", "--config", "config.yml"], stderr, words, tmp_path)

    assert all(word in output for word in words)
    assert set() == commands_of(output)


def test_events_are_ascii(tmp_path):
    """I4: what a log says as events is printed in JSON of plain characters, and means what was in the log."""
    target = "/v1/\u202e\x9b31m\U0001f600\x7f"
    (tmp_path / "vllm.log").write_text(f'INFO:     1.2.3.4:5 - "GET {target} HTTP/1.1" 404 Not Found\n', "utf-8")
    command = [sys.executable, "-c", MAIN, "once", "--log", "vllm.log", "--format", "events"]
    done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=True, cwd=tmp_path)

    assert done.stdout.isascii()
    assert set() == commands_of(done.stdout)
    assert target == json.loads(done.stdout)["fields"]["target"]


def test_printable_text_stays_as_it_is():
    """I4: letters of all scripts are shown."""
    text = "Ünïcödé 漢字 — [loggers.py:1] \\x1b"

    assert text == printable(text)
    assert "a\\nb\n" == printable("a\nb") + printable("\n", keep="\n")


def test_ascii_json_means_the_same():
    """I4: characters outside the basic plane become two units, as JSON has it."""
    document = '{"a": "\U0001f600é\x7f", "b": [1]}'

    assert json.loads(document) == json.loads(ascii_json(document.encode()))
