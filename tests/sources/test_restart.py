# SPDX-License-Identifier: Apache-2.0
"""The daemon was away for a while: it goes on where its checkpoint says, or says what was lost."""

from __future__ import annotations

import gzip
import os
import shutil

import pytest

from tests.support.logs import Log, stats_line


BANNER = b"".join(b"INFO [api_server.py:1] the same banner, line %d\n" % number for number in range(20))


def test_a_line_cut_by_a_restart_is_read_once(followed):
    """T2: a line whose beginning was there before a restart and whose end came after it is read once, whole."""
    line = stats_line(2)
    followed.write(1)
    followed.append(line[:60])
    before = followed.poll()
    followed.start(followed.stop())
    during = followed.poll()
    followed.append(line[60:])

    assert ([1], [], [2], []) == (before, during, followed.poll(), followed.poll())


@pytest.mark.parametrize("rotations", [1, 2, 3])
def test_rotated_while_down(followed, rotations):
    """T5: after rotations in its absence the daemon goes on in the rotated file, then in its successors."""
    followed.grow(1)
    with followed.away():
        followed.write(2)
        for number in range(rotations):
            followed.rotate()
            followed.write(10 + number)

    assert [2, *range(10, 10 + rotations)] == followed.poll()
    assert (rotations, 0) == (followed.counts.rotations, followed.counts.files_lost)
    assert [1] == followed.history


@pytest.mark.parametrize("is_same_inode", [False, True])
def test_rotated_beyond_retention_while_down(followed, is_same_inode):
    """T5: what was rotated away unread is counted as one generation, and all that is left is read from its start; if
    the newest file has got the lost one's inode, that counts as a truncation.
    """
    followed.grow(1)
    stopped = followed.stop()
    kept = followed.path.with_name("kept")  # Its inode is free for nobody else: which file gets it is not left to luck.
    os.link(followed.path, kept)
    followed.write(2)
    for number in range(10, 14):
        followed.rotate(retention=2)
        if is_same_inode and number == 13:
            kept.replace(followed.path)
            os.truncate(followed.path, 0)
        followed.write(number)
    followed.date(60.0)
    followed.start(stopped)

    assert [11, 12, 13] == followed.poll()
    assert (not is_same_inode, is_same_inode) == (followed.counts.files_lost, followed.counts.truncations)


def test_rotated_and_compressed_while_down(followed):
    """T6: a rotated file that was compressed is not read, and counted as lost; the present one is read."""
    followed.grow(1)
    with followed.away():
        followed.write(2)
        followed.rotate()
        followed.named(".1.gz").write_bytes(gzip.compress(followed.named(".1").read_bytes()))
        followed.named(".1").unlink()
        followed.write(3)

    assert [3] == followed.poll()
    assert 1 == followed.counts.files_lost


def test_copied_and_truncated_while_down(followed):
    """T7: what was written before a copy and truncation in the daemon's absence is read from the copy."""
    followed.grow(1)
    with followed.away():
        followed.write(2)
        followed.copytruncate()
        followed.write(3)

    assert [2, 3] == followed.poll()


def test_the_same_inode_is_another_file(followed):
    """T13: a new file that has the inode of the one in the checkpoint is read from its start."""
    followed.grow(1)
    stopped = followed.stop()
    inode = followed.path.stat().st_ino
    for _ in range(200):
        followed.path.unlink()
        followed.write(*range(10, 30))
        if followed.path.stat().st_ino == inode:
            break
    else:
        pytest.skip("this file system does not use inodes again")
    followed.start(stopped)

    assert list(range(10, 30)) == followed.poll()
    assert stopped[0].inode == inode
    assert 1 == followed.counts.truncations + followed.counts.files_lost


def test_the_same_beginning_is_not_the_same_file(followed):
    """T14: a new file with the old one's first 700 bytes is told from it by what comes before the offset."""
    followed.append(BANNER)
    followed.grow(1)
    with followed.away():
        followed.path.unlink()
        followed.append(BANNER)
        followed.write(7, 8)

    assert [7, 8] == followed.poll()


def test_other_files_beside_the_log_are_not_read_after_a_restart(log):
    """T5: old generations of another naming, and copies, are not taken for what was rotated meanwhile."""
    log.write(90, path=log.named("-20250101"))
    os.utime(log.named("-20250101"), (5000, 5000))
    log.write(91, path=log.named(".bak"))
    log.grow(1)
    shutil.copy(log.path, log.named("-20251121"))
    with log.away():
        log.write(2)
        log.rotate()
        log.write(3)

    assert [2, 3] == log.poll()


def test_a_symlink_into_another_file_system(tmp_path):
    """T5, T17: a log behind a link has its rotated files where it is, not where the link is."""
    (tmp_path / "var").mkdir()
    (tmp_path / "data").mkdir()
    link = tmp_path / "var" / "vllm.log"
    real = Log(tmp_path / "data" / "server.log")
    real.write(1)
    link.symlink_to(real.path)
    log = Log(link)
    log.poll()
    real.write(2)
    real.rotate()
    real.write(3)
    real.rotate()
    real.write(4)
    between_polls = log.poll()
    positions = log.stop()
    real.write(5)
    real.rotate()
    real.write(6)
    log.start(positions)

    assert ([2, 3, 4], [5, 6]) == (between_polls, log.poll())
    log.tail.close()
