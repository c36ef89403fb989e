# SPDX-License-Identifier: Apache-2.0
"""Rotations by renaming: nothing that is still on the disk is lost, and nothing is read twice."""

from __future__ import annotations

import os
import shutil
import threading

import pytest

from tests.support.logs import open_files, stats_line
from tests.support.samples import sample

from vllm_watch.daemon.sources import rotation
from vllm_watch.daemon.sources.file_follower import MAX_DRAINING
from vllm_watch.daemon.sources.rotation import ROTATE_WAIT


ROTATIONS = sample(200, whole=10_000)


def test_a_renamed_log_is_drained_and_the_new_one_read(followed):
    """T3: a writer that keeps the old file for a while and then opens the new one is read in both, nothing twice."""
    followed.grow(1)
    with open(followed.path, "ab", buffering=0) as old:
        followed.path.rename(followed.named(".1"))
        old.write(stats_line(2))
        first = followed.poll()
        followed.write(3)
        old.write(stats_line(4))
        second = followed.poll()
    followed.write(5)

    assert ([2], [3, 4], [5], []) == (first, sorted(second), followed.poll(), followed.poll())
    assert 1 == followed.counts.rotations


@pytest.mark.parametrize("rotations", [2, 3])
def test_several_rotations_between_two_polls(followed, rotations):
    """T4: two and three rotations between two polls lose no line, change no order, and are counted each."""
    followed.grow(1)
    followed.write(2)
    for number in range(rotations):
        followed.rotate()
        followed.write(10 + number)

    assert [2, *range(10, 10 + rotations)] == followed.poll()
    assert (rotations, 0) == (followed.counts.rotations, followed.counts.files_lost)


def test_numbers_of_two_digits_are_older(followed):
    """T4: a file that goes from .9 to .10 is older than .2, whatever its name sorts like."""
    for number in range(8):
        followed.write(number)
        followed.rotate(retention=20)
        followed.poll()
    followed.write(8)
    for number in range(9, 13):
        followed.rotate(retention=20)
        followed.write(number)

    assert followed.named(".10").exists()
    assert [8, 9, 10, 11, 12] == followed.poll()


@pytest.mark.parametrize(
    "names", [("-20261121", "-20261122", "-20261123"), (".2026-11-21_02", ".2026-11-21_03", ".2026-11-21_04")]
)
@pytest.mark.parametrize("step", [0, 1, -1], ids=["stands", "ahead", "back"])
def test_dated_files_and_a_clock_that_is_set(followed, names, step):
    """T4: files named by dates are found in order, also if the clock stands; none is lost if it is set meanwhile."""
    followed.write(0)
    followed.path.rename(followed.named("-20261101"))
    followed.grow()
    found = []
    for number, name in enumerate(names, 1):
        followed.write(number)
        followed.path.rename(followed.named(name))
        os.utime(followed.named(name), (5000.0 + step * number, 5000.0 + step * number))
        followed.write()
    found = followed.poll()

    assert [1, 2, 3] == (found if step >= 0 else sorted(found))
    followed.write(4)
    assert [4] == followed.poll()


def test_files_that_others_put_beside_the_log_are_not_read(log):
    """Copies, extracts and old generations of another naming that lie beside a log are not taken for a part of it."""
    log.write(90, path=log.named("-20250101"))
    log.grow(1)
    log.write(91, path=log.named(".bak"))
    log.write(92, path=log.named(".stats"))
    log.write(93, path=log.named(".2"))
    log.rotate()
    first = log.grow(2)
    log.rotate()
    log.write(3)

    assert ([2], [3]) == (first, log.poll())


def test_a_copy_of_what_was_read_is_not_read_again(followed):
    """A copy that someone makes before a rotation, under a name like a rotated file's, is not read again."""
    followed.grow(*range(1, 9))
    shutil.copy(followed.path, followed.named("-20261121"))
    followed.rotate()
    followed.write(9)

    assert [9] == followed.poll()


def test_files_are_renamed_while_they_are_listed(followed, monkeypatch):
    """T4: a rotation that goes on between the listing of rotated files and their opening loses nothing."""
    followed.grow(1)
    followed.rotate()
    followed.write(2)
    followed.rotate()
    followed.write(3)
    listed = rotation.rotated_names
    rotations = iter([True])

    def list_and_rotate(path):
        found = listed(path)
        if next(rotations, False):
            followed.rotate()
            followed.write(4)
        return found

    monkeypatch.setattr(rotation, "rotated_names", list_and_rotate)

    assert [2, 3, 4] == sorted(followed.poll() + followed.poll())


def test_an_unreadable_rotated_file_is_counted_and_passed(followed, monkeypatch):
    """T16: a rotated file that cannot be opened is lost and counted, and the others are read."""
    followed.grow(1)
    followed.rotate()
    followed.write(2)
    followed.rotate()
    followed.write(3)
    opened = rotation.LogFile

    def refuse(path):
        if path.endswith(".1"):
            raise PermissionError(13, "no")
        return opened(path)

    monkeypatch.setattr(rotation, "LogFile", refuse)

    assert [3] == followed.poll()
    assert 1 == followed.counts.files_lost
    assert [False, True] == followed.gaps
    assert followed.counts.read_errors > 0
    assert (True, "ok") == followed.status


def test_a_writer_that_never_notices_is_read_on(followed):
    """T3: a writer that goes on in the renamed file, with long silences, is read while the new one is empty."""
    followed.rotate()
    followed.poll()
    found = []
    for number in range(5):
        found += followed.poll(ROTATE_WAIT * 3)
        followed.write(number, path=followed.named(".1"))
    found += followed.poll()

    assert [0, 1, 2, 3, 4] == found


def test_a_rotated_file_is_let_go(followed):
    """T32: a rotated file that nobody writes to any more is closed, at once or at last if it was removed."""
    before = open_files()
    followed.rotate()
    followed.grow(1)
    during = open_files()
    followed.poll(ROTATE_WAIT + 1)

    assert (before + 1, before) == (during, open_files())
    followed.rotate()
    followed.named(".1").unlink()
    followed.poll()
    followed.poll(ROTATE_WAIT + 1)
    assert before == open_files()


def test_a_line_that_is_never_finished_is_dropped_and_counted(followed):
    """T3: the beginning of a line at the end of a rotated file is never joined to what comes in the next one."""
    line = stats_line(5)
    followed.append(line[:-20])
    followed.poll()
    followed.rotate()
    followed.append(line[-20:] + stats_line(6))
    first = followed.poll()
    followed.poll(ROTATE_WAIT + 1)

    assert [6] == first
    assert len(line) - 20 == followed.counts.skipped_bytes


@pytest.mark.slow
def test_many_rotations_leave_nothing_open(followed):
    """T32: descriptors and threads are as many after many rotations as before, and no line is lost."""
    before = open_files(), threading.active_count()
    most, read = 0, 0
    for number in range(ROTATIONS):
        followed.write(number)
        followed.rotate(retention=2)
        read += len(followed.poll(0.5))
        most = max(most, open_files())
    followed.write(1)
    read += len(followed.poll())
    followed.poll(ROTATE_WAIT + 1)

    assert (ROTATIONS + 1, ROTATIONS) == (read, followed.counts.rotations)
    assert most <= before[0] + MAX_DRAINING + 1
    assert open_files() <= before[0]
    assert threading.active_count() <= before[1]
