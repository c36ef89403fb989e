# SPDX-License-Identifier: Apache-2.0
"""Truncations: what was copied before is read from the copy, no line is torn, and holes cost nothing."""

from __future__ import annotations

import os
import re
import shutil

from pathlib import Path

import pytest
import structlog

from tests.support.logs import run_child, stats_line

from vllm_watch.daemon.config.server_config import ServerConfig
from vllm_watch.daemon.service.monitor import ServerMonitor
from vllm_watch.daemon.support.clock import SystemClock


HOLE = 8 << 30
GIB = 1 << 30


def test_what_was_not_read_before_a_truncation_is_in_the_copy(followed):
    """T7: lines written between the last poll and the copy are read from the copy, the one begun before whole."""
    followed.write(1)
    line = stats_line(2)
    followed.append(line[:50])
    followed.poll()
    followed.append(line[50:])
    followed.write(3)
    followed.copytruncate()
    followed.write(4)

    assert [2, 3, 4] == followed.poll()
    followed.copytruncate()
    followed.write(5)
    assert [5] == followed.poll()


def test_copies_of_a_log_that_was_not_read_yet(followed):
    """T7: what was written to a new log and copied away before the first poll at it is read from the copy."""
    line = stats_line(3, second=30)
    followed.write(1, 2)
    followed.copytruncate()
    followed.append(line[:40])
    first = followed.poll()
    followed.append(line[40:])
    followed.named(".1").rename(followed.named(".2"))
    followed.copytruncate()
    followed.write(4)

    assert ([1, 2], [3, 4], []) == (first, followed.poll(), followed.poll())


def test_without_a_copy_an_unfinished_line_is_lost_and_counted(followed):
    """T7: the beginning of a line that was truncated away is never joined to anything, and counted."""
    line = stats_line(5)
    followed.append(line[:-20])
    followed.poll()
    os.truncate(followed.path, 0)
    followed.append(line[-20:] + stats_line(6))

    assert [6] == followed.poll()
    assert (1, len(line) - 20) == (followed.counts.truncations, followed.counts.skipped_bytes)


@pytest.mark.parametrize("lines", [2, 3, 50])
def test_a_log_truncated_and_refilled_is_noticed(followed, lines):
    """T8: a log refilled to the same length or more before the next poll is read from its start, no line torn."""
    followed.grow(1, 2)
    os.truncate(followed.path, 0)
    followed.write(*range(10, 10 + lines))

    assert list(range(10, 10 + lines)) == followed.poll()
    assert 1 == followed.counts.truncations


@pytest.mark.parametrize("kept", [1, 100, 300])
def test_a_log_truncated_to_a_part_is_read_from_its_start(followed, kept):
    """T9: a log cut to a non-zero length inside what was read is read again from its start, and counted once."""
    followed.grow(1, 2)
    with open(followed.path, "r+b") as file:
        head = file.read(kept)
    os.truncate(followed.path, kept)
    first = followed.poll()
    followed.append(b"\n")
    second = followed.grow(3)

    assert [1] * head.count(b"\n") == first
    assert ([3], 1) == (second, followed.counts.truncations)


def test_the_hole_of_a_writer_that_does_not_append(followed):
    """T10: the NUL bytes that a writer without O_APPEND leaves after a truncation spoil no line, and are counted."""
    with open(followed.path, "r+b", buffering=0) as writer:
        writer.write(stats_line(1))
        followed.poll()
        shutil.copy(followed.path, followed.named(".1"))
        os.truncate(followed.path, 0)
        writer.write(stats_line(2))
        first = followed.poll()
        writer.write(stats_line(3))

    assert ([2], [3]) == (first, followed.poll())
    assert (1, len(stats_line(1))) == (followed.counts.truncations, followed.counts.nul_bytes)


def _bytes_read():
    """Return what this process has read so far, by its own count."""
    return int(re.search(r"rchar: (\d+)", Path("/proc/self/io").read_text())[1])


def test_a_huge_hole_is_passed_over(followed):
    """T10: eight GiB of nothing are not read, and the line behind them is."""
    followed.grow(1)
    with open(followed.path, "r+b") as file:
        os.pwrite(file.fileno(), b"\n" + stats_line(2), HOLE)
    before = _bytes_read()
    found = followed.poll()

    assert [2] == found
    assert _bytes_read() - before < HOLE / 100
    assert HOLE - len(stats_line(1)) == followed.counts.nul_bytes


def test_a_hole_in_an_unfinished_line(log):
    """T10: a restart inside a line with a hole in it begins with the line, not behind its first part."""
    line = stats_line(7)
    log.grow(1)
    log.append(line[:30] + bytes(40) + line[30:60])
    log.poll()
    stopped = log.stop()
    log.start(stopped)
    log.append(line[60:])

    assert stopped[0].offset == len(stats_line(1))
    assert [7] == log.poll()


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_hole_where_a_hole_was_is_another(followed, is_restarted):
    """T10: a log truncated while reading is inside or behind a hole, and refilled with another one, is begun again."""
    followed.grow(1)
    os.truncate(followed.path, 1 << 20)
    followed.poll()
    if is_restarted:
        followed.start(followed.stop())
        followed.poll()
    os.truncate(followed.path, 0)
    followed.write(2)
    with open(followed.path, "r+b") as file:
        os.pwrite(file.fileno(), b"\n" + stats_line(3), 2 << 20)

    assert [2, 3] == followed.poll()
    assert 1 == followed.counts.truncations


def test_the_writer_is_told_once_to_append(tmp_path):
    """T10: NUL bytes are said once in the daemon's own log, with the advice to start the server with >>."""
    path = tmp_path / "vllm.log"
    path.touch()
    server = ServerMonitor(ServerConfig(name="a", log=str(path)), SystemClock())
    with structlog.testing.capture_logs() as said:
        for number in range(3):
            server.log.poll()
            with path.open("ab") as file:
                file.write(bytes(10) + stats_line(number))
        server.log.poll()
    server.close()
    warnings = [record for record in said if record["event"] == "log.nul_bytes"]

    assert [("warning", "a")] == [(record["log_level"], record["server"]) for record in warnings]
    assert "O_APPEND" in warnings[0]["meaning"]
    assert ">>" in warnings[0]["meaning"]


@pytest.mark.slow
@pytest.mark.parametrize("is_sparse", [True, False])
def test_nuls_without_end_take_no_memory(tmp_path, is_sparse):
    """T11: a GiB of NUL bytes without a line as a hole, or many MiB written, are passed in bounded memory."""
    path = tmp_path / "vllm.log"
    size = GIB if is_sparse else GIB >> 4
    took = run_child(
        """
        import resource
        from tests.support.logs import Log, stats_line
        path, size, is_sparse = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "True"
        log = Log(path)
        log.grow()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if is_sparse:
            os.truncate(path, size)
        else:
            for _ in range(size >> 20):
                log.append(bytes(1 << 20))
        for _ in range(60):
            log.poll()
        log.append(b"\\n" + stats_line(5))
        assert [5] == log.poll(), "not read"
        assert log.counts.nul_bytes == size, log.counts
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
        """,
        path,
        size,
        is_sparse,
    )

    assert int(took) < 16 * 1024
