# SPDX-License-Identifier: Apache-2.0
"""
How far each log has been read, kept in one file, so that a restart resumes where the last run ended.

What is known of each server, and the last change of its flags, is kept with that: the log may have it no more. So is
which GPUs its processes were on: one that is lost shows no process any more.
This module handles a checkpoint that is damaged, or cannot be written. The file is always replaced as a whole: whenever
the machine or the process dies, it holds the last save or the one before. A file that cannot be read is rejected with a
reason, and logs are then read as on a first start. Where reading resumes is in `resumption`.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat

from collections.abc import Collection, Iterable
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from vllm_watch.daemon.catalog.reasons import CheckpointReason
from vllm_watch.daemon.state.kept_facts import KeptFacts, KnownUse
from vllm_watch.daemon.state.snapshot import ConfigChange, FlagChange
from vllm_watch_parsers.flags import is_flag_text


VERSION = 1

SAVE_INTERVAL = 5.0
"""Seconds between two writes: after a crash so much is read again."""

EARLY_SECONDS = 10.0
EARLY_INTERVAL = 1.0
"""Seconds between the first writes: a daemon that always dies early makes progress, too."""

MAX_SIZE = 16 * 1024 * 1024
MAX_FUTURE = 86_400.0
"""Seconds by which the clock may have been set back since the file was written."""

CHECKED_SIZE = 256
"""How many bytes of a file its head and its marker hold at most."""

_MAX_FLAGS = 128
_MAX_GPUS = 256
_UUID = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z/-]{1,80}", re.ASCII)
_MAX_CRC = 2**32 - 1
_MAX_INT64 = 2**63 - 1
_MAX_ID = 2**64 - 1
_LIMITS = {
    "device": _MAX_ID,
    "inode": _MAX_ID,
    "offset": _MAX_INT64,
    "head_size": CHECKED_SIZE,
    "head_crc": _MAX_CRC,
    "marker_size": CHECKED_SIZE,
    "marker_crc": _MAX_CRC,
}


class FilePosition(NamedTuple):
    """
    How far a file has been read, and what identifies it.

    The head is the file's first bytes, the marker the bytes before the offset, each at most `CHECKED_SIZE` and stored
    as its size and CRC-32. `read_until` is a moment before which all that was written to the file had been read, in
    seconds since the epoch; 0 means that of the whole checkpoint.
    """

    path: str
    device: int
    inode: int
    offset: int
    head_size: int
    head_crc: int
    marker_size: int
    marker_crc: int
    read_until: float = 0.0


class JournalPosition(NamedTuple):
    """The journal's cursor of a unit's last line that was read."""

    unit: str
    cursor: str


class ServerChange(NamedTuple):
    """The last change of a server's flags; its time is that of the wall clock."""

    server: str
    change: ConfigChange


class Positions(NamedTuple):
    """
    How far everything has been read, the kernel's log included, what each server has changed last, which GPUs its
    processes were on, and what is known of it.
    """

    files: tuple[FilePosition, ...] = ()
    journals: tuple[JournalPosition, ...] = ()
    changes: tuple[ServerChange, ...] = ()
    kernel_cursor: str | None = None
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
        return self._replace(files=tuple(file for file in self.files if (file.device, file.inode) not in ids))

    def dated(self, read_until: float) -> Positions:
        """Return them with a moment before which all had been read; files that have their own keep it."""
        return self._replace(
            files=tuple(file._replace(read_until=file.read_until or read_until) for file in self.files)
        )


class Loaded(NamedTuple):
    """
    What a checkpoint holds, and a moment before which all that was written had been read, in seconds since the epoch.

    `reason` is ``ok`` or why it holds nothing.
    """

    positions: Positions
    reason: CheckpointReason
    written: float = 0.0


# A float where an int belongs is an impossible value, not a wrong shape.
_Number = int | float


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    device: _Number
    inode: _Number
    offset: _Number
    head_size: _Number
    head_crc: _Number
    marker_size: _Number
    marker_crc: _Number
    read_until: _Number = 0


class _Journal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    unit: str
    cursor: str


class _Flag(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"old": "from", "new": "to"}):
    flag: str
    old: str | None
    new: str | None


class _Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    server: str
    at: _Number | None
    changes: list[_Flag]


class _Gpus(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    server: str
    pid: _Number
    started: _Number
    gpus: list[str]


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    written: _Number
    files: list[_File]
    journals: list[_Journal]
    changes: list[_Change] = []
    kernel_cursor: str | None = None
    gpus: list[_Gpus] = []
    facts: tuple[KeptFacts, ...] = ()


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
        self._temporary = Path(f"{path}.tmp")
        self._saved = Positions()
        self._saved_file: tuple[int, ...] | None = None
        self._first_tried_at: float | None = None
        self._tried_at: float | None = None
        self.failures = 0
        self.last_error = ""

    def load(self, now: float) -> Loaded:
        """Return what was saved last; `now` is in seconds since the epoch."""
        try:
            document = _document(_read(self._path))
            return Loaded(_positions(document, now), "ok", document.written)
        except FileNotFoundError:
            return Loaded(Positions(), "absent")
        except OSError:
            return Loaded(Positions(), "unreadable")
        except _RejectedError as rejected:
            return Loaded(Positions(), rejected.reason)

    def save(self, positions: Positions, now: float, *, read_until: float | None = None, force: bool = False) -> bool:
        """
        Write positions that changed, if the last attempt was long enough ago; return whether the file holds them.

        Args:
            positions: How far everything has been read.
            now: Seconds since the epoch.
            read_until: A moment before which all that was written had been read; by default now.
            force: Write at once, because there will be no later attempt.
        """
        if self._holds(positions):
            return True
        if not force and self._tried_at is not None and 0.0 <= now - self._tried_at < self._interval(now):
            return False
        self._tried_at = now
        if self._first_tried_at is None:
            self._first_tried_at = now
        try:
            self._replace(_encode(positions, now if read_until is None else min(read_until, now)))
        except OSError as error:
            self.failures += 1
            self.last_error = error.strerror or type(error).__name__
            return False
        self.last_error = ""
        self._saved, self._saved_file = positions, _identity(self._path)
        return True

    def _interval(self, now: float) -> float:
        is_early = self._first_tried_at is not None and 0.0 <= now - self._first_tried_at < EARLY_SECONDS
        return min(EARLY_INTERVAL, SAVE_INTERVAL) if is_early else SAVE_INTERVAL

    def _holds(self, positions: Positions) -> bool:
        """Whether these positions were saved, and the file is still the one that was written."""
        return self._saved_file is not None and positions == self._saved and _identity(self._path) == self._saved_file

    def _replace(self, data: bytes) -> None:
        self._temporary.unlink(missing_ok=True)
        try:
            _write_new(self._temporary, data)
            self._temporary.replace(self._path)
        except OSError:
            with suppress(OSError):  # The first error says more.
                self._temporary.unlink()
            raise
        _sync_directory(self._path.parent)


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


def _document(data: bytes) -> _Document:
    """Return a file's content; raises `_RejectedError` if it has not the shape of a checkpoint."""
    # The standard library's parser, because it reads what it wrote: file names that are not UTF-8.
    try:
        content: Any = json.loads(data)
    except (ValueError, RecursionError):
        raise _RejectedError("not_json") from None
    if not isinstance(content, dict):
        raise _RejectedError("wrong_shape")
    if content.get("version", VERSION) != VERSION:
        raise _RejectedError("wrong_version")
    try:
        return msgspec.convert(content, _Document)
    except (msgspec.ValidationError, UnicodeEncodeError):  # A key may hold a lone surrogate.
        raise _RejectedError("wrong_shape") from None


def _positions(document: _Document, now: float) -> Positions:
    moments = [document.written, *(file.read_until for file in document.files)]
    if not all(0 <= moment <= _MAX_INT64 for moment in moments):  # Nor does NaN pass.
        raise _RejectedError("impossible_values")
    if document.written > now + MAX_FUTURE:
        raise _RejectedError("from_the_future")
    files = tuple([_file_position(file) for file in document.files])
    journals = tuple([_journal_position(journal) for journal in document.journals])
    changes = tuple([_server_change(change) for change in document.changes])
    if document.kernel_cursor is not None and not _is_name(document.kernel_cursor):
        raise _RejectedError("impossible_values")
    gpus = tuple(map(_known_use, document.gpus))
    return Positions(files, journals, changes, document.kernel_cursor, gpus, document.facts)


def _file_position(file: _File) -> FilePosition:
    numbers = {name: _whole(getattr(file, name), limit) for name, limit in _LIMITS.items()}
    if not _is_name(file.path) or numbers["marker_size"] > numbers["offset"]:
        raise _RejectedError("impossible_values")
    return FilePosition(file.path, **numbers, read_until=file.read_until)


def _journal_position(journal: _Journal) -> JournalPosition:
    if not (_is_name(journal.unit) and _is_name(journal.cursor)):
        raise _RejectedError("impossible_values")
    return JournalPosition(journal.unit, journal.cursor)


def _server_change(change: _Change) -> ServerChange:
    """Return a change: its names and values become labels, as those in a log do."""
    texts = [text for each in change.changes for text in (each.flag, each.old, each.new) if text is not None]
    is_possible = change.at is None or 0 <= change.at <= _MAX_INT64
    if not is_possible or len(change.changes) > _MAX_FLAGS or not all(map(is_flag_text, texts)):
        raise _RejectedError("impossible_values")
    changes = tuple([FlagChange(each.flag, each.old, each.new) for each in change.changes])
    return ServerChange(change.server, ConfigChange(change.at, changes))


def _known_use(saved: _Gpus) -> KnownUse:
    """Return the GPUs of a server: their UUIDs become labels."""
    if not _are_gpus(saved.gpus):
        raise _RejectedError("impossible_values")
    start = _whole(saved.pid, _MAX_INT64), _whole(saved.started, _MAX_INT64)
    return KnownUse(saved.server, start, frozenset(saved.gpus))


def _are_gpus(uuids: Collection[str]) -> bool:
    return len(uuids) <= _MAX_GPUS and all(map(_UUID.fullmatch, uuids))


def _whole(value: float, limit: int) -> int:
    if isinstance(value, int) and 0 <= value <= limit:
        return value
    raise _RejectedError("impossible_values")


def _is_name(text: str) -> bool:
    """Tell whether a text can be a path, or the argument of a command."""
    try:
        return text != "" and b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:  # A lone surrogate that encodes no byte.
        return False


def _encode(positions: Positions, written: float) -> bytes:
    document: dict[str, object] = {
        "version": VERSION,
        "written": written,
        "files": [_file_document(file) for file in positions.files],
        "journals": [journal._asdict() for journal in positions.journals],
    }
    if positions.changes:
        document["changes"] = [_change_document(each) for each in positions.changes]
    if positions.kernel_cursor is not None:
        document["kernel_cursor"] = positions.kernel_cursor
    gpus = [_gpus_document(each) for each in positions.gpus if _are_gpus(each.gpus)]
    if gpus:
        document["gpus"] = gpus
    if positions.facts:
        document["facts"] = msgspec.to_builtins(positions.facts)
    return json.dumps(document).encode("ascii") + b"\n"


def may_name(pattern: str, path: str) -> bool:
    """Tell whether a path, or a glob, may be that of a file."""
    return path == pattern or fnmatchcase(path, pattern)


def _file_document(file: FilePosition) -> dict[str, object]:
    fields = file._asdict()
    if not file.read_until:
        del fields["read_until"]
    return fields


def _gpus_document(known: KnownUse) -> dict[str, object]:
    pid, started = known.start
    return {"server": known.server, "pid": pid, "started": started, "gpus": sorted(known.gpus)}


def _change_document(saved: ServerChange) -> dict[str, object]:
    changes = [{"flag": flag, "from": old, "to": new} for flag, old, new in saved.change.changes]
    return {"server": saved.server, "at": saved.change.at, "changes": changes}


def _write_new(path: Path, data: bytes) -> None:
    # O_EXCL and O_NOFOLLOW: a file or link that someone else put there is not written to.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    """Make sure that the new name survives a loss of power."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # Some file systems cannot, and need not.
            raise
    finally:
        os.close(descriptor)


def _identity(path: Path) -> tuple[int, ...] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
