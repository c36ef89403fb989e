# SPDX-License-Identifier: Apache-2.0
"""
An open regular file: all that a log's reader asks the operating system about a file that it has open.

This module handles file handles that fail: an expired handle of a network file system is replaced, and a path that
names a pipe or a device is not opened.
"""

from __future__ import annotations

import errno
import os
import resource
import stat

from typing import NamedTuple


class NotRegularError(OSError):
    """The path is a directory, a pipe, a socket or a device."""


class FileId(NamedTuple):
    """What tells files apart as long as they exist."""

    device: int
    inode: int


class FileState(NamedTuple):
    """What differs once a file is another one or was changed, but for two changes within one tick."""

    file_id: FileId
    size: int
    modified: int
    changed: int


class OpenFile:
    """
    A file that is open for reading at any offset. Close it with `close`. All methods raise `OSError`.

    Args:
        path: The path. Raises `NotRegularError` if it names anything but a file.

    Attributes:
        file_id: The file's device and inode.
        real_path: Where the file was when it was opened, with all links resolved.
    """

    def __init__(self, path: str) -> None:
        self.real_path = os.path.realpath(path)
        self._fd, self.file_id = _open(path)

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def reopen(self, path: str) -> bool:
        """Open the same file again if `path` names it, and use the new handle; return whether it does."""
        fd, file_id = _open(path)
        if file_id != self.file_id:
            os.close(fd)
            return False
        self.close()
        self._fd = fd
        return True

    def size(self) -> int:
        """Return the file's size now, in bytes."""
        return os.fstat(self._fd).st_size

    def modified(self) -> float:
        """Return when the file was last written, in seconds since the epoch."""
        return os.fstat(self._fd).st_mtime

    def state(self) -> FileState:
        """Return the file's state now."""
        return file_state(os.fstat(self._fd))

    def is_unlinked(self) -> bool:
        """Tell whether the file has no name any more: it takes room on the disk for as long as it is open."""
        return os.fstat(self._fd).st_nlink == 0

    def is_in_place(self) -> bool:
        """Tell whether the file is still at its real path: if so, what has changed is a link that led to it."""
        try:
            status = os.stat(self.real_path, follow_symlinks=False)
        except OSError:
            return False
        return FileId(status.st_dev, status.st_ino) == self.file_id

    def read_at(self, offset: int, size: int) -> bytes:
        """Return the bytes at an offset."""
        return os.pread(self._fd, size, offset)

    def end_of_hole(self, offset: int) -> int:
        """Return where the hole at an offset ends; the offset itself if no hole is known there."""
        try:
            end = os.lseek(self._fd, offset, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                return offset  # This file system reports no holes: their NUL bytes are read.
            end = self.size()
        return max(end, offset)


def file_state(status: os.stat_result) -> FileState:
    """Return a file's state by what the operating system says of it."""
    return FileState(FileId(status.st_dev, status.st_ino), status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _check_number(fd: int, path: str) -> None:
    """Check that a log leaves half of the files that may be open to clients, scrapes and the checkpoint."""
    try:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    except OSError:  # The system call is not allowed.
        return
    if limit != resource.RLIM_INFINITY and fd >= limit // 2:  # The lowest free number: as many files are open.
        raise OSError(errno.EMFILE, "half of the limit of open files (LimitNOFILE) is not for logs", path)


def _open(path: str) -> tuple[int, FileId]:
    # O_NONBLOCK: opening a pipe would wait for its writer.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        _check_number(fd, path)
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise NotRegularError(f"{path} is not a regular file")
    except OSError:
        os.close(fd)
        raise
    return fd, FileId(status.st_dev, status.st_ino)
