# SPDX-License-Identifier: Apache-2.0
"""Several logs of one server under a glob, with their rotated files among the matches."""

from __future__ import annotations

import gzip
import os

import pytest

from tests.support.logs import Log, open_files

from vllm_watch.daemon.sources import log_tailer as tail_module
from vllm_watch.daemon.sources.rotation import ROTATE_WAIT


@pytest.fixture
def logs(tmp_path):
    """Return a function that makes a log with a glob."""
    made = []

    def make(glob, name="vllm.log"):
        made.append(Log(tmp_path / name, tmp_path / glob))
        return made[-1]

    yield make
    for log in made:
        log.tail.close()


def test_all_matches_of_a_glob_are_read(logs, tmp_path):
    """A glob's matches are all read, also those that appear later; a rotated one is not read again, soon or late."""
    log = logs("vllm-*", "vllm-a.log")
    log.grow()
    log.write(1)
    log.write(2, path=tmp_path / "vllm-b.log")
    first = log.poll()
    log.path.rename(log.named(".1"))
    log.write(3)

    assert ([1, 2], [3]) == (sorted(first), log.poll())
    assert [] == log.poll(ROTATE_WAIT + 1) + log.poll() + log.poll()


def test_matches_that_rotate_into_each_other(logs):
    """T4: with a glob that matches rotated files too, each line is read once through many rotations and pauses."""
    log = logs("vllm.log*")
    log.grow()
    found = []
    for number in range(12):
        log.write(number)
        log.rotate(retention=4)
        found += log.poll(ROTATE_WAIT if number % 3 else 1.0)
        log.named(".4.gz").write_bytes(gzip.compress(b"x\n"))
    found += log.poll(ROTATE_WAIT + 1) + log.poll()

    assert list(range(12)) == found
    assert 0 == log.counts.files_lost


def test_matches_that_rotated_while_down(logs):
    """T5: with a glob that matches rotated files too, a restart goes on in the right ones and repeats nothing."""
    log = logs("vllm.log*")
    log.write(1)
    log.rotate()
    log.grow(2)
    with log.away():
        log.write(3)
        log.rotate()
        log.write(4)

    assert [3, 4] == log.poll() + log.poll(ROTATE_WAIT + 1) + log.poll()
    assert 0 == log.counts.files_lost


def test_compressed_matches_are_not_read(logs, tmp_path):
    """T6: what a glob matches of compressed files is no log."""
    log = logs("vllm*")
    log.write(1)
    for ending in ("gz", "xz", "zst", "bz2"):
        log.write(66, path=tmp_path / f"vllm-8.log.1.{ending}")
    log.poll()

    assert [1] == log.history


def test_two_servers_are_no_rotation(logs, tmp_path):
    """Logs whose names differ by a number are two logs, not one and its rotated file."""
    log = logs("vllm*", "vllm")
    for name in ("vllm", "vllm-0", "vllm-8001", "vllm-8001.log", "vllm-1.log"):
        log.write(path=tmp_path / name)
    log.poll()
    for number, name in enumerate(("vllm", "vllm-0", "vllm-8001", "vllm-8001.log", "vllm-1.log")):
        log.write(number, path=tmp_path / name)

    assert [0, 1, 2, 3, 4] == sorted(log.poll())


def test_of_too_many_matches_the_ones_written_last_are_read(logs, tmp_path, monkeypatch):
    """Of too many matches the newest are followed and the others counted; one that is written again is taken up."""
    monkeypatch.setattr(tail_module, "MAX_FILES", 4)
    log = logs("*.log")
    before = open_files()
    for number in range(10):
        path = tmp_path / f"{number}.log"
        log.write(number, path=path)
        os.utime(path, (5000 + number, 5000 + number))
    log.poll()
    history, ignored = log.history[:], log.counts.ignored_files
    log.write(20, path=tmp_path / "9.log")
    log.write(21, path=tmp_path / "0.log")
    found = log.poll()
    log.write(22, path=tmp_path / "0.log")
    found += log.poll()

    assert ([6, 7, 8, 9], 6) == (history, ignored)
    assert ([20, 22], [0, 21]) == (found, log.history[4:])
    assert open_files() - before == 4, "those that are followed"


def test_a_match_that_falls_behind_is_let_go_and_taken_up_where_it_was(logs, tmp_path, monkeypatch):
    """T32: a match that others have overtaken is closed, and read on from where it was when it is written again."""
    monkeypatch.setattr(tail_module, "MAX_FILES", 2)
    log = logs("*.log")
    log.grow()
    before = open_files()
    found = log.grow(1)
    for number in range(20):
        path = tmp_path / f"{number}.log"
        log.write(100 + number, path=path)
        os.utime(path, (2**31 + number, 2**31 + number))
        found += log.poll()
    most = open_files()
    log.write(2)
    os.utime(log.path, (2**31 + 50, 2**31 + 50))
    found += log.poll()

    assert [1, *range(100, 120), 2] == found
    assert most <= before + 1
