# SPDX-License-Identifier: Apache-2.0
"""Opens a recording, in whichever form it is."""

from __future__ import annotations

from pathlib import Path

from vllm_watch.analysis.replay.recording import Recording
from vllm_watch.analysis.replay.recording_file import MAGIC, RecordingFile
from vllm_watch.analysis.replay.recording_folder import TIMELINE, RecordingFolder
from vllm_watch.daemon.support.errors import FileError


def open_recording(path: Path) -> Recording:
    """
    Open a folder or a file; it is read once and checked.

    Raises:
        FileError: It cannot be read, or is no recording.
    """
    return RecordingFolder(path) if path.is_dir() else RecordingFile(path)


def is_recording(path: Path) -> bool:
    """
    Tell by its content whether a path names a recording, whatever its name is.

    Raises:
        FileError: It cannot be read.
    """
    if path.is_dir():
        return (path / TIMELINE).exists()
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror}") from error
