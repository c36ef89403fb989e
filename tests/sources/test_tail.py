# SPDX-License-Identifier: Apache-2.0
"""Following logs: every look is made by the test, at the time the test says."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from vllm_watch.sources.followed import ROTATE_WAIT
from vllm_watch.sources.tail import LogTail
from vllm_watch_parsers.events import EngineStats


def stats_line(running, second=0):
    """Return a statistics line with `running` requests."""
    return (
        f"(APIServer pid=7) INFO 11-21 02:35:{second:02d} [loggers.py:335] Engine 000: "
        f"Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 2.0 tokens/s, Running: {running} reqs, "
        f"Waiting: 0 reqs, GPU KV cache usage: 1.0%, Prefix cache hit rate: 0.0%\n"
    ).encode()


class Log:
    """A log file, its tail, and the numbers of running requests that were read from it."""

    def __init__(self, path, pattern=None):
        self.path = path
        self.tail = LogTail(str(pattern or path))
        self.now = 1000.0
        self.history = []

    def write(self, *running, path=None):
        """Append a statistics line for each number."""
        with open(path or self.path, "ab") as file:
            file.writelines(stats_line(number) for number in running)

    def look(self, seconds=1.0):
        """Look once, later; return the numbers that were read."""
        self.now += seconds
        found = []
        for batch, is_history in self.tail.poll(self.now):
            running = [t.event.requests_running for t in batch.events if isinstance(t.event, EngineStats)]
            (self.history if is_history else found).extend(running)
        return found

    @property
    def counts(self):
        """What has been counted."""
        return self.tail.status().tail


@pytest.fixture
def log(tmp_path):
    """A log that is not there yet."""
    followed = Log(tmp_path / "vllm.log")
    yield followed
    followed.tail.close()


@pytest.fixture
def followed(log):
    """A log that is there, empty and looked at."""
    log.write()
    log.look()
    return log


def test_lines_are_read_once_and_in_order(followed):
    """Each line that is appended is read once, whether it comes alone or with others."""
    followed.write(1)
    first = followed.look()
    followed.write(2, 3)

    assert ([1], [2, 3], []) == (first, followed.look(), followed.look())


def test_a_line_in_pieces_is_read_when_it_is_complete(followed):
    """A line written in pieces is read once, whole, after its end has come."""
    line = stats_line(5)
    found = []
    for piece in (line[:10], line[10:90], line[90:-1], line[-1:]):
        with open(followed.path, "ab") as file:
            file.write(piece)
        found.append(followed.look())

    assert [[], [], [], [5]] == found


def test_an_unfinished_line_counts_as_lag(followed):
    """Bytes of a line without its end are not read yet."""
    with open(followed.path, "ab") as file:
        file.write(b"half a line")
    followed.look()

    assert len(b"half a line") == followed.counts.lag


def test_a_missing_file_is_awaited(log):
    """A log that is not there yet is read from its first byte once it appears."""
    log.look()
    before = log.tail.status()
    log.write(1, 2)

    assert (False, "not_found") == (before.is_up, before.reason)
    assert [1, 2] == log.look()
    assert (True, "ok") == log.tail.status()[:2]


def test_a_missing_folder_is_awaited(tmp_path):
    """A log whose folder is not there yet is read once both appear."""
    log = Log(tmp_path / "later" / "vllm.log")
    log.look()
    (tmp_path / "later").mkdir()
    log.write(1)

    assert [1] == log.look()
    log.tail.close()


def test_what_was_there_before_informs_and_is_not_counted(log):
    """Lines older than the first look come as history."""
    log.write(1, 2)
    log.look()
    log.write(3)

    assert ([1, 2], [3]) == (log.history, log.look())
    assert 1 == log.counts.lines


def test_history_is_the_last_start_and_the_end(log):
    """Of a long log the start of the server and the last lines are read, not what lies between."""
    start = b"INFO 11-21 02:00:00 [api_server.py:1043] vLLM API server version 0.8.5\n" + stats_line(1)
    with open(log.path, "wb") as file:
        file.write(stats_line(0) * 2000)
        file.write(start)
        file.write(b'INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 200 OK\n' * 100_000)
        file.write(stats_line(9))
    log.look()

    assert (1, 9) == (log.history[-2], log.history[-1])
    assert len(log.history) < 200


def test_history_ends_when_the_file_was_last_written(log):
    """A line's time in history is counted back from the file's time: printed times have no year and no zone."""
    with open(log.path, "wb") as file:
        file.write(stats_line(1, second=10) + stats_line(2, second=40))
    os.utime(log.path, (5000.0, 5000.0))

    times = [timed.at for batch, _ in log.tail.poll(9000.0) for timed in batch.events]
    log.tail.close()

    assert [4970.0, 5000.0] == times


def test_a_renamed_log_is_drained_and_the_new_one_read(followed):
    """After a rotation by renaming, the rest of the old file and the new file are read, nothing twice."""
    followed.write(1)
    followed.look()
    followed.write(2)
    rotated = followed.path.with_suffix(".log.1")
    followed.path.rename(rotated)
    followed.write(3)
    first = followed.look()
    followed.write(4, path=rotated)
    followed.write(5)

    assert ([2, 3], [4, 5]) == (first, followed.look())
    assert 1 == followed.counts.rotations


def test_a_rotated_file_is_let_go(followed):
    """A rotated file that nobody writes to any more is closed."""
    before = len(os.listdir("/proc/self/fd"))
    followed.path.rename(followed.path.with_suffix(".log.1"))
    followed.write(1)
    followed.look()
    during = len(os.listdir("/proc/self/fd"))
    followed.look(ROTATE_WAIT + 1)
    followed.look()

    assert (before + 1, before) == (during, len(os.listdir("/proc/self/fd")))


def test_a_truncated_log_is_read_from_its_start(followed):
    """A log that was copied and truncated goes on at its start."""
    followed.write(1, 2)
    followed.look()
    shutil.copy(followed.path, followed.path.with_suffix(".copy"))
    os.truncate(followed.path, 0)
    followed.write(3)

    assert [3] == followed.look()
    assert 1 == followed.counts.truncations


@pytest.mark.parametrize("lines", [2, 3, 50])
def test_a_log_truncated_and_refilled_is_noticed(followed, lines):
    """A log refilled to the same length or more before the next look is read from its start, no line torn."""
    followed.write(1, 2)
    followed.look()
    os.truncate(followed.path, 0)
    followed.write(*range(100, 100 + lines))

    assert list(range(100, 100 + lines)) == followed.look()


def test_nul_bytes_are_taken_out(followed):
    """The hole that a writer without O_APPEND leaves after a truncation spoils no line."""
    with open(followed.path, "r+b") as writer:
        writer.write(stats_line(1))
        writer.flush()
        followed.look()
        os.truncate(followed.path, 0)
        writer.write(stats_line(2))
        writer.flush()

    assert [2] == followed.look()
    assert len(stats_line(1)) == followed.counts.nul_bytes


def test_a_giant_line_is_dropped_and_the_next_one_read(followed):
    """A line over 64 KiB is dropped and counted, and takes nothing with it."""
    with open(followed.path, "ab") as file:
        file.write(b"x" * 3_000_000 + b"\n" + stats_line(4))

    assert [4] == followed.look()
    assert 1 == followed.counts.long_lines


def test_a_deleted_log_is_read_to_its_end_and_its_successor_from_the_start(followed):
    """What is written to a deleted file is read while it is open, then the new file."""
    with open(followed.path, "ab") as writer:
        followed.path.unlink()
        writer.write(stats_line(1))
        writer.flush()
        first = followed.look()
    followed.write(2)

    assert ([1], [2]) == (first, followed.look())


def test_a_symlink_is_followed_to_its_new_target(tmp_path):
    """When a symbolic link is switched, the old target's rest and the new target are read."""
    old, new, link = tmp_path / "a.log", tmp_path / "b.log", tmp_path / "vllm.log"
    log = Log(link)
    log.write(path=old)
    link.symlink_to(old)
    log.look()
    log.write(1, path=old)
    log.write(2, path=new)
    other = tmp_path / "other"
    other.symlink_to(new)
    other.replace(link)

    assert [1, 2] == log.look()
    log.tail.close()


@pytest.mark.parametrize("kind", ["folder", "fifo", "loop"])
def test_what_is_no_file_is_refused_without_waiting(tmp_path, kind):
    """A folder, a pipe and a link to itself are said to be what they are, and do not block."""
    path = tmp_path / "vllm.log"
    {"folder": path.mkdir, "fifo": lambda: os.mkfifo(path), "loop": lambda: path.symlink_to(path)}[kind]()
    log = Log(path)
    log.look()

    assert (False, {"folder": "not_regular", "fifo": "not_regular", "loop": "symlink_loop"}[kind]) == (
        log.tail.status()[:2]
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_log_that_may_not_be_read_is_awaited(log):
    """A log without permission says so, and is read once it is permitted."""
    log.write(1)
    log.path.chmod(0)
    log.look()
    before = log.tail.status().reason
    log.path.chmod(0o600)
    log.look()

    assert ("permission_denied", "ok") == (before, log.tail.status().reason)


def test_all_matches_of_a_glob_are_read(tmp_path):
    """A glob's matches are all read, also those that appear later; a rotated one is not read again."""
    log = Log(tmp_path / "vllm-a.log", tmp_path / "vllm-*")
    log.write()
    log.look()
    log.write(1)
    log.write(2, path=tmp_path / "vllm-b.log")
    first = log.look()
    (tmp_path / "vllm-a.log").rename(tmp_path / "vllm-a.log.1")
    log.write(3)

    assert ([1, 2], [3]) == (sorted(first), log.look())
    log.tail.close()


def test_dockers_wrapping_is_taken_away(followed):
    """Lines in Docker's json-file format are read, those that Docker cut in two joined."""
    whole, cut = stats_line(1).decode(), stats_line(2).decode()
    records = [("stdout", whole), ("stdout", cut[:50]), ("stderr", "noise\n"), ("stdout", cut[50:])]
    with open(followed.path, "a") as file:
        for stream, text in records:
            file.write(
                json.dumps({"log": text, "stream": stream, "time": "2026-11-21T02:35:00Z"}, separators=(",", ":"))
            )
            file.write("\n")

    assert [1, 2] == followed.look()


def test_kubernetes_wrapping_is_taken_away(followed):
    """Lines in Kubernetes' CRI format are read, parts joined."""
    whole, cut = stats_line(1).decode().rstrip(), stats_line(2).decode().rstrip()
    parts = [("stdout", "F", whole), ("stdout", "P", cut[:50]), ("stderr", "F", "noise"), ("stdout", "F", cut[50:])]
    with open(followed.path, "a") as file:
        file.writelines(f"2026-11-21T02:35:00.123456789Z {stream} {tag} {text}\n" for stream, tag, text in parts)

    assert [1, 2] == followed.look()


def test_a_backlog_is_read_in_pieces(followed):
    """One look reads a limited part of a backlog and says that there is more."""
    followed.write(*[1] * 60_000)
    first = len(followed.look())
    has_more = followed.tail.has_more
    rest = sum(len(followed.look()) for _ in range(20))

    assert has_more
    assert first < 60_000 == first + rest
