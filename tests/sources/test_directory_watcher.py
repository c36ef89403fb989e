# SPDX-License-Identifier: Apache-2.0
"""Hints that a log was rotated or began: they come where they can, and nothing depends on them."""

from __future__ import annotations

import threading

import pytest

from tests.support.waiting import SECONDS
from watchdog.observers import Observer

from vllm_watch.daemon.sources.directory_watcher import DirectoryWatcher


@pytest.fixture
def wake():
    """Return what a hint sets."""
    return threading.Event()


@pytest.fixture
def watcher(wake):
    """Return a watcher, which ends with the test."""
    watcher = DirectoryWatcher(wake)
    yield watcher
    watcher.stop()


def hinted(wake, write):
    """Tell whether a hint comes after something was written."""
    wake.clear()
    write()
    return wake.wait(SECONDS)


def test_a_new_file_and_a_new_name_are_hinted(tmp_path, watcher, wake):
    """A file that is created, and one that is renamed, wake who waits; one that grows does not, since it is polled."""
    path = tmp_path / "vllm.log"
    path.touch()
    watcher.watch({str(tmp_path)})

    assert watcher.covers(str(tmp_path))
    path.write_text("line\n")
    assert hinted(wake, lambda: path.rename(tmp_path / "vllm.log.1"))
    assert hinted(wake, path.touch)


def test_a_folder_that_is_replaced_is_watched_again(tmp_path, watcher, wake):
    """A new folder of the same name has its own watch at the next look."""
    folder = tmp_path / "logs"
    folder.mkdir()
    watcher.watch({str(folder)})
    folder.rename(tmp_path / "old")
    folder.mkdir()
    watcher.watch({str(folder)})

    assert hinted(wake, (folder / "vllm.log").touch)


def test_a_folder_that_is_missing_or_no_longer_wanted_is_not_watched(tmp_path, watcher):
    """A folder is watched from when it exists until nobody asks for it."""
    folder = tmp_path / "logs"
    watcher.watch({str(folder)})
    assert not watcher.covers(str(folder))

    folder.mkdir()
    watcher.watch({str(folder)})
    assert watcher.covers(str(folder))

    watcher.watch(set())
    assert not watcher.covers(str(folder))


def test_without_watches_logs_are_polled(tmp_path, watcher, monkeypatch):
    """T22: where the kernel has no watch left the folder is not covered; it is tried again at the next look."""
    with monkeypatch.context() as patch:
        patch.setattr(Observer, "schedule", lambda *_arguments, **_options: (_ for _ in ()).throw(OSError("no space")))
        watcher.watch({str(tmp_path)})
        assert not watcher.covers(str(tmp_path))

    watcher.watch({str(tmp_path)})
    assert watcher.covers(str(tmp_path))
