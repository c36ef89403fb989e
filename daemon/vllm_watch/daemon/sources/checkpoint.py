# SPDX-License-Identifier: Apache-2.0
"""
The checkpoint's file: how far each log has been read, so that a restart resumes where the last run ended.

It also keeps what is known of each server and the last change of its flags, since the log may no longer have them, and
which GPUs its processes were on, since a GPU that is lost no longer shows its processes.
This module handles a checkpoint that is damaged, or cannot be written. The file is always replaced as a whole: whenever
the machine or the process dies, it holds the last save or the one before. A file that cannot be read is rejected with a
reason, and logs are then read as on a first start. Where reading resumes is in `file_follower`.
"""

from __future__ import annotations

import json
import os
import re
import stat

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from vllm_watch.daemon.catalog.reasons import CheckpointReason
from vllm_watch.daemon.state.kept_facts import KeptFacts, KnownUse
from vllm_watch.daemon.state.snapshot import ConfigChange
from vllm_watch.daemon.support.whole_file import replaced_file
from vllm_watch_parsers.flags import is_flag_text


VERSION = 1

SAVE_INTERVAL = 5.0
"""Seconds between two writes: after a crash so much is read again."""

MAX_SIZE = 16 * 1024 * 1024
MAX_FUTURE = 86_400.0
"""Seconds by which the clock may have been set back since the file was written."""


CHECKED_SIZE = 256
"""How many bytes of a file its head and its marker hold at most."""

_MAX_FLAGS = 128
_MAX_GPUS = 256
_UUID = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z/-]{1,80}", re.ASCII)

Moment = Annotated[float, msgspec.Meta(ge=0, le=2**63)]
"""Seconds since the epoch."""

Size = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
CheckedSize = Annotated[int, msgspec.Meta(ge=0, le=CHECKED_SIZE)]
Crc = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
FileNumber = Annotated[int, msgspec.Meta(ge=0)]
Name = Annotated[str, msgspec.Meta(pattern=r"\A[^\0\ud800-\udc7f\udd00-\udfff]+\Z")]
"""What can be a path, or the argument of a command: half a character encodes no byte."""


class FilePosition(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, order=True):
    """
    How far a file has been read, and what identifies it.

    The head is the file's first bytes, the marker the bytes before the offset, each at most `CHECKED_SIZE` and stored
    as its size and CRC-32. `read_until` is a moment before which all that was written to the log had been read.
    """

    path: Name
    device: FileNumber
    inode: FileNumber
    offset: Size
    head_size: CheckedSize
    head_crc: Crc
    marker_size: CheckedSize
    marker_crc: Crc
    read_until: Moment = 0.0

    def dated(self, read_until: float) -> FilePosition:
        """Return it with such a moment."""
        return msgspec.structs.replace(self, read_until=read_until)


class JournalPosition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The journal's cursor of a unit's last line that was read."""

    unit: Name
    cursor: Name


class ServerChange(NamedTuple):
    """The last change of a server's flags; its time is that of the wall clock."""

    server: str
    change: ConfigChange


class Positions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """
    How far everything has been read, the kernel's log included, what each server has changed last, which GPUs its
    processes were on, and what is known of it.
    """

    files: tuple[FilePosition, ...] = ()
    journals: tuple[JournalPosition, ...] = ()
    changes: tuple[ServerChange, ...] = ()
    kernel_cursor: Name | None = None
    gpus: tuple[KnownUse, ...] = ()
    facts: tuple[KeptFacts, ...] = ()

    def facts_of(self, server: str) -> KeptFacts | None:
        """Return what is known of a server, if anything is."""
        return next((each for each in self.facts if each.server == server), None)

    def change_of(self, server: str) -> ConfigChange | None:
        """Return the last change of a server's flags, if it is known."""
        return next((each.change for each in self.changes if each.server == server), None)

    def of(self, log: str | None, unit: str | None) -> Positions:
        """Return those of one log: of the files that its path or glob matches, and of its unit's journal."""
        files = tuple(file for file in self.files if log is not None and may_name(log, file.path))
        return Positions(files, tuple(journal for journal in self.journals if journal.unit == unit))

    def beside(self, others: Iterable[Positions]) -> Positions:
        """Return these and others; if several have the same file or unit the last one is taken."""
        each = (self, *others)
        files = {file.path: file for positions in each for file in positions.files}
        journals = {journal.unit: journal for positions in each for journal in positions.journals}
        return Positions(tuple(files.values()), tuple(journals.values()))

    def without(self, files: Iterable[FilePosition]) -> Positions:
        """Return those of other files, whatever their paths are."""
        ids = {(file.device, file.inode) for file in files}
        files = tuple(file for file in self.files if (file.device, file.inode) not in ids)
        return msgspec.structs.replace(self, files=files)


class Loaded(NamedTuple):
    """What a checkpoint holds; `reason` is ``ok`` or why it holds nothing."""

    positions: Positions
    reason: CheckpointReason


class _RejectedError(Exception):
    """A checkpoint is not used."""

    def __init__(self, reason: CheckpointReason) -> None:
        super().__init__(reason)
        self.reason: CheckpointReason = reason


class CheckpointFile:
    """
    Loads and saves positions.

    Args:
        path: The file. While it is written there is a second one, with ``.tmp`` added to the name.

    Attributes:
        failures: How many saves failed.
        last_error: The operating system's message if the last one failed, else empty.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._saved = Positions()
        self._saved_file: tuple[int, ...] | None = None
        self._tried_at: float | None = None
        self.failures = 0
        self.last_error = ""

    def load(self, now: float) -> Loaded:
        """Return what was saved last; `now` is in seconds since the epoch."""
        try:
            return _loaded(_read(self._path), now)
        except FileNotFoundError:
            return Loaded(Positions(), "absent")
        except OSError:
            return Loaded(Positions(), "unreadable")
        except _RejectedError as rejected:
            return Loaded(Positions(), rejected.reason)

    def save(self, positions: Positions, now: float, *, force: bool = False) -> bool:
        """
        Write positions that changed, if the last attempt was long enough ago; return whether the file holds them.

        Args:
            positions: How far everything has been read.
            now: Seconds since the epoch.
            force: Write at once, because there will be no later attempt.
        """
        if self._holds(positions):
            return True
        if not force and self._tried_at is not None and 0.0 <= now - self._tried_at < SAVE_INTERVAL:
            return False
        self._tried_at = now
        try:
            with replaced_file(self._path, Path(f"{self._path}.tmp"), mode=0o600) as file:
                file.write(_encode(positions, now))
        except OSError as error:
            self.failures += 1
            self.last_error = error.strerror or type(error).__name__
            return False
        self.last_error = ""
        self._saved, self._saved_file = positions, _identity(self._path)
        return True

    def _holds(self, positions: Positions) -> bool:
        """Whether these positions were saved, and the file is still the one that was written."""
        return self._saved_file is not None and positions == self._saved and _identity(self._path) == self._saved_file


def _read(path: Path) -> bytes:
    # O_NONBLOCK: opening a pipe would wait for its writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _RejectedError("unreadable")
        data = file.read(MAX_SIZE + 1)
    if len(data) > MAX_SIZE:
        raise _RejectedError("too_large")
    if not data.strip():
        raise _RejectedError("empty")
    return data


def _loaded(data: bytes, now: float) -> Loaded:
    """Return a file's content; raises `_RejectedError` if it is no checkpoint."""
    # The standard library's parser, because it reads what it wrote: file names that are not UTF-8.
    try:
        content: Any = json.loads(data)
    except (ValueError, RecursionError):
        raise _RejectedError("not_json") from None
    if not isinstance(content, dict) or "version" not in content:
        raise _RejectedError("wrong_shape")
    if content.pop("version") != VERSION:
        raise _RejectedError("wrong_version")
    try:
        written = msgspec.convert(content.pop("written", None), Moment)
        positions = msgspec.convert(content, Positions)
    except (msgspec.ValidationError, UnicodeEncodeError, OverflowError):  # A key may hold a lone surrogate.
        raise _RejectedError("wrong_shape") from None
    if written > now + MAX_FUTURE:
        raise _RejectedError("from_the_future")
    if not (
        all(file.marker_size <= file.offset for file in positions.files)
        and all(_is_possible(saved.change) for saved in positions.changes)
        and all(map(_can_be_saved, positions.gpus))
    ):
        raise _RejectedError("impossible_values")
    return Loaded(positions, "ok")


def _is_possible(change: ConfigChange) -> bool:
    """Tell whether a change can be: its names and values become labels, as those in a log do."""
    texts = [text for each in change.changes for text in each if text is not None]
    return (change.at is None or change.at >= 0) and len(texts) <= 3 * _MAX_FLAGS and all(map(is_flag_text, texts))


def _can_be_saved(use: KnownUse) -> bool:
    """Tell whether the GPUs of a server can be: their UUIDs become labels."""
    return min(use.start) >= 0 and len(use.gpus) <= _MAX_GPUS and all(map(_UUID.fullmatch, use.gpus))


def _encode(positions: Positions, written: float) -> bytes:
    saved = msgspec.structs.replace(positions, gpus=tuple(filter(_can_be_saved, positions.gpus)))
    document = {"version": VERSION, "written": written, **msgspec.to_builtins(saved, order="deterministic")}
    return json.dumps(document).encode("ascii") + b"\n"


def may_name(pattern: str, path: str) -> bool:
    """Tell whether a path, or a glob, may be that of a file."""
    return path == pattern or fnmatchcase(path, pattern)


def _identity(path: Path) -> tuple[int, ...] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


NOTHING_BEFORE = Positions()
