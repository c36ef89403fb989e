# SPDX-License-Identifier: Apache-2.0
"""Hints that a log has grown: they come at once, only for the log, and may be missing."""

from __future__ import annotations

import errno
import threading

import pytest
import structlog

from vllm_watch.sources.wake import FolderWatch


SECONDS = 5.0


@pytest.fixture
def wake():
    """The event that a hint sets."""
    return threading.Event()


@pytest.fixture
def watch(wake):
    """A running watch of nothing yet."""
    found = FolderWatch(wake)
    found.start()
    yield found
    found.stop()


def test_a_line_wakes(watch, wake, tmp_path):
    """A line that is written is a hint."""
    log = tmp_path / "vllm.log"
    log.touch()
    watch.refresh([str(log)])
    wake.clear()
    log.write_bytes(b"x\n")

    assert wake.wait(SECONDS)


def test_a_rotation_wakes(watch, wake, tmp_path):
    """Renaming the log, and what appears under a glob, are hints."""
    log = tmp_path / "vllm-a.log"
    log.touch()
    watch.refresh([str(tmp_path / "vllm-*.log")])
    wake.clear()
    log.rename(tmp_path / "elsewhere")

    assert wake.wait(SECONDS)


def test_other_files_of_a_busy_folder_do_not_wake(watch, wake, tmp_path):
    """Changes of other files are no hints: the log's own comes after theirs and is the first."""
    watch.refresh([str(tmp_path / "vllm.log")])
    wake.clear()
    for number in range(50):
        (tmp_path / f"other-{number}").write_bytes(b"x")
    assert not wake.is_set()
    (tmp_path / "vllm.log").write_bytes(b"x")

    assert wake.wait(SECONDS)


def test_a_replaced_folder_is_watched_anew(watch, wake, tmp_path):
    """T15: a folder that was removed and made again gives hints again after the next look."""
    folder = tmp_path / "logs"
    folder.mkdir()
    log = folder / "vllm.log"
    watch.refresh([str(log)])
    folder.rmdir()
    folder.mkdir()
    log.touch()

    def hinted():
        watch.refresh([str(log)])
        wake.clear()
        log.write_bytes(b"x\n")
        return wake.wait(0.1)

    assert any(hinted() for _ in range(50))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
def test_without_watches_the_log_is_polled(watch, tmp_path, monkeypatch, number):
    """T22: when the kernel has no watches left, that is said once and nothing breaks."""

    def refuse(*_):
        raise OSError(number, "inotify limit reached")

    monkeypatch.setattr(watch._observer, "schedule", refuse)
    with structlog.testing.capture_logs() as said:
        watch.refresh([str(tmp_path / "vllm.log")])
        watch.refresh([str(tmp_path / "vllm.log")])

    assert [record["event"] for record in said] == ["wake.refused"]
