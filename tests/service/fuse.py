# SPDX-License-Identifier: Apache-2.0
"""
A file system of one folder that hangs when it is told to, as that of a network's server that is gone.

It speaks the kernel's own protocol over ``/dev/fuse``, so that what waits for it waits where a daemon would: in the
kernel, out of reach. It shows the files of another folder, read-only, and keeps nothing of them.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import tempfile
import threading

from functools import cache
from pathlib import Path

from tests.support.waiting import SECONDS


_HEADER = struct.Struct("<IIQQIIII")
_ANSWER = struct.Struct("<IiQ")
_ATTRIBUTES = struct.Struct("<QQQQQQIIIIIIIIII")
_ENTRY = struct.Struct("<QQQQII")
_LOOKUP, _GETATTR, _OPEN, _READ, _RELEASE, _INIT, _OPENDIR, _READDIR, _RELEASEDIR = 1, 3, 14, 15, 18, 26, 27, 28, 29
_FORGET, _BATCH_FORGET, _INTERRUPT = 2, 42, 36
_ROOT = 1
_MAX = 1024 * 1024
_FORCE, _DETACH = 1, 2
LIMIT_SECONDS = 2 * SECONDS
"""After so long whatever waits is let go with an error: a fault must fail its test, and not hang all of them."""
_libc = ctypes.CDLL(None, use_errno=True)


class HangingFolder:
    """
    Shows `source` at `place`, and answers nothing while it hangs.

    Use it as a context manager; at the end everything that waits is let go with an error.
    """

    def __init__(self, source: Path, place: Path):
        self.source, self.place = source, place
        self._answers = threading.Event()
        self._answers.set()
        self._is_over = False
        self._paths = {_ROOT: source}
        self._numbers = {source: _ROOT}
        self.asked = 0

    def __enter__(self):
        """Mount."""
        self.place.mkdir(exist_ok=True)
        self._fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self._fd},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
        if _libc.mount(b"hanging", os.fsencode(self.place), b"fuse", 0, options):
            os.close(self._fd)
            raise OSError(ctypes.get_errno(), "mount")
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        self._limit = threading.Timer(LIMIT_SECONDS, self._let_go)
        self._limit.daemon = True
        self._limit.start()
        return self

    def __exit__(self, *_error):
        """Unmount, and let go of what waits."""
        self._limit.cancel()
        self._is_over = True
        self._answers.set()
        self._let_go()
        _libc.umount2(os.fsencode(self.place), _DETACH)
        os.close(self._fd)

    def _let_go(self):
        """Have the kernel end what waits with an error."""
        _libc.umount2(os.fsencode(self.place), _FORCE)

    def hang(self):
        """Answer nothing from now on."""
        self._answers.clear()

    def answer(self):
        """Answer what was asked meanwhile, and go on."""
        self._answers.set()

    def _serve(self):
        while True:
            try:
                request = os.read(self._fd, _MAX + 4096)
            except OSError as error:
                if error.errno == errno.EINTR:
                    continue
                return
            size, code, unique, node, *_ = _HEADER.unpack_from(request)
            body = request[_HEADER.size : size]
            if code in {_FORGET, _BATCH_FORGET, _INTERRUPT}:
                continue
            self.asked += 1
            self._answers.wait()
            if self._is_over:
                return
            try:
                data, failure = self._do(code, node, body), 0
            except OSError as error:
                data, failure = b"", -(error.errno or errno.EIO)
            try:
                os.write(self._fd, _ANSWER.pack(_ANSWER.size + len(data), failure, unique) + data)
            except OSError:
                continue  # Whoever asked is gone.

    def _do(self, code, node, body):
        if code == _INIT:
            _major, minor, ahead, _flags = struct.unpack_from("<IIII", body)
            return struct.pack("<IIIIHHIIHH7I", 7, min(minor, 31), ahead, 0, 12, 10, 4096, 1, 1, 0, *[0] * 7)
        path = self._paths[node]
        if code == _LOOKUP:
            return self._entry(path / os.fsdecode(body.rstrip(b"\0")))
        if code == _GETATTR:
            return struct.pack("<QII", 0, 0, 0) + self._attributes(path)
        if code in {_OPEN, _OPENDIR}:
            return struct.pack("<QII", 0, 1, 0)  # Read directly: nothing is kept.
        if code == _READ:
            _handle, offset, size = struct.unpack_from("<QQI", body)
            with path.open("rb") as file:
                return os.pread(file.fileno(), size, offset)
        if code == _READDIR:
            _handle, offset, size = struct.unpack_from("<QQI", body)
            return self._names(path, offset, size)
        if code in {_RELEASE, _RELEASEDIR}:
            return b""
        raise OSError(errno.ENOSYS, "not known")

    def _entry(self, path):
        attributes = self._attributes(path)
        number = self._numbers.setdefault(path, len(self._numbers) + 1)
        self._paths[number] = path
        return _ENTRY.pack(number, 0, 0, 0, 0, 0) + attributes

    def _attributes(self, path):
        found = os.lstat(path)
        seconds, rest = divmod(found.st_mtime_ns, 1_000_000_000)
        return _ATTRIBUTES.pack(
            found.st_ino,
            found.st_size,
            0,
            seconds,
            seconds,
            seconds,
            rest,
            rest,
            rest,
            found.st_mode,
            1,
            0,
            0,
            0,
            4096,
            0,
        )

    @staticmethod
    def _names(path, offset, size):
        data = b""
        for number, entry in enumerate(sorted(os.scandir(path), key=lambda entry: entry.name), 1):
            if number <= offset:
                continue
            name = os.fsencode(entry.name)
            kind = stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode) >> 12
            record = struct.pack("<QQII", entry.inode(), number, len(name), kind) + name
            record += bytes(-len(record) % 8)
            if len(data) + len(record) > size:
                break
            data += record
        return data


@cache
def can_mount():
    """Tell whether this process may mount such a file system."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            with HangingFolder(Path(folder), Path(folder) / "place"):
                return True
        except OSError:
            return False
