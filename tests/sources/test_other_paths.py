# SPDX-License-Identifier: Apache-2.0
"""A server's log gets another path: the same file under another name, or another file after a restart of the server."""

from __future__ import annotations

import time

import pytest

from msgspec.structs import replace
from tests.support.logs import open_files, printed_now, stats_line

from vllm_watch.daemon.sources.log_tailer import LogTailer


START = b"(APIServer pid=7) INFO 11-21 02:35:00 [api_server.py:1289] vLLM API server version 0.14.0\n"


@pytest.fixture(autouse=True)
def now(followed):
    """The time by which a start is recent is that by which lines are printed."""
    followed.now = time.time()


def old(lines):
    """Return lines as they were printed hours ago."""
    stamp = time.strftime("%m-%d %H:%M:%S", time.localtime(time.time() - 20_000))
    return lines.replace(b"11-21 02:35:00", stamp.encode())


@pytest.mark.parametrize("is_noticed", [True, False])
@pytest.mark.parametrize("foreign", [(), (90, 91)])
def test_a_file_that_was_renamed(followed, is_noticed, foreign):
    """A renamed file is read on exactly where it was left, whoever writes at its former path."""
    line = stats_line(3)
    followed.write(1, 2)
    followed.append(line[:60])
    assert [1, 2] == followed.poll()

    former = followed.path
    renamed = followed.path.rename(followed.named(".2"))
    followed.write(*foreign, path=former)
    if is_noticed:
        assert list(foreign) == followed.poll()
    followed.append(line[60:], path=renamed)
    followed.write(4, path=renamed)
    followed.move(renamed)

    assert ([3, 4], []) == (followed.poll(), followed.poll())
    assert [] == followed.history
    followed.write(5)
    assert [5] == followed.poll()


def test_a_file_that_was_renamed_while_down(followed):
    """A file that was renamed in the daemon's absence is read on where it was left, also beside older positions."""
    followed.grow(1, 2)
    early = followed.stop()
    followed.write(3)
    followed.start(early)
    followed.poll()
    positions = followed.stop()
    followed.path = followed.path.rename(followed.named(".2"))
    followed.write(4)
    older = tuple(replace(each, path="/former") for each in early)
    followed.tail = LogTailer(str(followed.path), (*positions, *older), followed.wall)

    assert ([4], []) == (followed.poll(), followed.poll())


def test_another_file_of_a_server_that_was_started_anew(followed):
    """In another file what came before the last start is history, and from it on everything is new."""
    followed.grow(1)
    followed.write(2)
    followed.tail.poll(followed.now)
    other = followed.path.with_name("other.log")
    followed.append(old(START + stats_line(80)) + printed_now(START + stats_line(81)), path=other)
    followed.move(other)

    assert ([81], []) == (followed.poll(), followed.poll())
    assert [] == followed.history


def test_another_file_without_a_new_start(followed):
    """Another file in which no server was started lately is history: nothing in it is counted."""
    followed.grow(1)
    other = followed.path.with_name("other.log")
    followed.append(old(START + stats_line(80)) + printed_now(stats_line(82)), path=other)
    followed.move(other)

    assert [] == followed.poll()
    assert [80, 82] == followed.history
    followed.write(81)
    assert [81] == followed.poll()


def test_another_path_that_names_nothing_yet(followed):
    """A path that names no file yet is waited for, and its file is read from its first byte."""
    followed.grow(1)
    followed.move(followed.path.with_name("other.log"))
    assert [] == followed.poll()
    assert (False, "not_found") == followed.status

    followed.write(2)
    assert [2] == followed.poll()


def test_back_to_the_first_path(followed):
    """A log that is renamed again and again, and written anew at its first path, is read once; no file stays open."""
    before = open_files()
    first, read = followed.path, []
    for number in range(4):
        followed.append(printed_now(stats_line(number)))
        read += followed.poll()
        followed.move(first.rename(first.with_name(f"vllm.log-2026112{number}")))
        read += followed.poll()
        read += followed.grow(10 + number)
        followed.append(printed_now(START), path=first)
        followed.move(first)
    followed.poll()

    assert [0, 10, 1, 11, 2, 12, 3, 13] == read
    assert [] == followed.history
    assert before == open_files()
