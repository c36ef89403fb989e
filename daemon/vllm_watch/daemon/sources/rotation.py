# SPDX-License-Identifier: Apache-2.0
"""
The rotated files of a log: which of them came after a file that is open, and in which of them reading stopped.

This module handles rotation by renaming and by copying: a log may be rotated several times between two polls, and while
its rotated files are listed and opened. File times decide which file is newer only if nothing else shows it, because
clocks can be set back.

Rotation gives the names ``vllm.log.1``, ``vllm.log-20261121`` and the like. Compressed files are ignored: what is in
them was written long ago. Names that no rotation gives are ignored, too: a ``vllm.log.bak`` is no part of the log.
"""

from __future__ import annotations

import os
import re
import stat

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from vllm_watch.daemon.reading.log_reader import LogReader
from vllm_watch.daemon.sources.checkpoint import FilePosition
from vllm_watch.daemon.sources.log_file import FileId, LogFile, NotRegularError, ReadCounts
from vllm_watch.daemon.sources.startup_scan import skip_into


GZIP = ".gz"
_COMPRESSED = (GZIP, ".xz", ".zst", ".bz2", ".lz4", ".zip")
_NUMBER = re.compile(r"\.(\d{1,4})$", re.ASCII)
_ROTATED = re.compile(r"[.-](?:\d[\w.:+-]*|old|prev)$", re.ASCII)
# In a glob `vllm-0` and `vllm-1` are two servers: only a number after a dot, or a date, says that a match is rotated.
_SURELY_ROTATED = re.compile(r"(?:\.\d{1,4}|[.-]\d{4}-?\d\d-?\d\d[\w.:+-]*|-\d{9,}|\.old|\.prev)$", re.ASCII)


class RotatedName(NamedTuple):
    """
    A rotated file as its folder lists it now.

    `modified` is in seconds since the epoch. `number` counts up with age; a file without a number has 0.
    """

    path: str
    file_id: FileId
    modified: float
    number: int


def rotated_names(path: str) -> list[RotatedName]:
    """
    Return a log's rotated files, the oldest first: by their numbers where they have them, else by their times.

    If the path is a link, those beside its target belong to them. Raises `OSError` if a folder cannot be listed.
    """
    found: dict[FileId, RotatedName] = {}
    for log in dict.fromkeys((os.path.abspath(path), os.path.realpath(path))):
        folder, name = os.path.split(log)
        for entry in _entries(folder):
            if entry.name.startswith(name) and _ROTATED.match(entry.name, len(name)) and not is_compressed(entry.name):
                rotated = _rotated_name(entry)
                if rotated is not None:
                    found[rotated.file_id] = rotated
    return sorted(found.values(), key=_age, reverse=True)


def former_files(path: str) -> list[str]:
    """Return the paths of a log's rotated files, those that gzip has compressed included; none if it has no folder."""
    folder, name = os.path.split(path)
    try:
        entries = [entry.name for entry in _entries(folder or ".")]
    except OSError:
        return []
    return [
        os.path.join(folder, entry)
        for entry in entries
        if entry.startswith(name) and _ROTATED.match(entry.removesuffix(GZIP), len(name)) and _is_readable(entry)
    ]


def log_name(path: str) -> str:
    """Return the path of the log that a file is a part of, by its name: the path itself if it is not rotated."""
    name = path.removesuffix(GZIP)
    start = name.rfind("/") + 1
    found = _SURELY_ROTATED.search(name, start)
    return name[: found.start()] if found and found.start() > start else name


def is_compressed(path: str) -> bool:
    """Tell whether a file is compressed, by its name."""
    return path.endswith(_COMPRESSED)


def is_rotated_of(path: str, logs: Collection[str]) -> bool:
    """Tell whether a path is, by its name, a rotated file of one of the logs."""
    start = path.rfind("/") + 1
    cuts = (found.start() for found in re.finditer(r"[.-]", path) if found.start() > start)
    return any(path[:cut] in logs and _SURELY_ROTATED.match(path, cut) for cut in cuts)


def _is_readable(name: str) -> bool:
    return not is_compressed(name) or name.endswith(GZIP)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        # Files of one moment have the same time: then their names, which hold dates, tell which is older.
        return sorted(entries, key=lambda entry: entry.name)


def _rotated_name(entry: os.DirEntry[str]) -> RotatedName | None:
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None  # It was removed meanwhile.
    if not stat.S_ISREG(status.st_mode):
        return None
    number = _NUMBER.search(entry.name)
    return RotatedName(
        entry.path, FileId(status.st_dev, status.st_ino), status.st_mtime, int(number[1]) if number else 0
    )


def _age(name: RotatedName) -> tuple[int, float]:
    """Order by number, then by time: several files of one moment have the same time, never the same number."""
    return (name.number, -name.modified)


MAX_ROTATED = 64
"""Rotated files that are searched for the one that was read last."""

ROTATE_WAIT = 30.0
"""Seconds for which an unchanged file is still polled: a busy vLLM prints statistics every 10 s."""

TIMES_MAY_LAG = 0.05
"""Seconds by which a file's time may be before the moment at which it was written."""

_TRIES = 3

_Choice = Callable[[list[RotatedName]], list[RotatedName]]


class ResumePoint(NamedTuple):
    """
    Where reading a path stopped: in an earlier run of the daemon, or in this one when the path named nothing.

    Attributes:
        position: How far its file was read.
        is_same_run: Whether this run has read it: then what was read is known and counted. Its file was read to its
            end before it was closed: if it is gone, nothing is lost.
    """

    position: FilePosition
    is_same_run: bool = False


class RotatedFiles:
    """
    Finds and opens the rotated files of one path. It remembers those that were there before the path's present file.

    Args:
        path: The path. Its file must be opened afterwards: what is rotated from then on is not remembered.
        counts: Counts what cannot be opened or read.
    """

    def __init__(self, path: str, counts: ReadCounts) -> None:
        self._path = path
        self._counts = counts
        self._has_listed = False
        self._failing_since: float | None = None
        self._older = {_key(name) for name in self.all()}
        """Rotated files that were there when they were opened last."""

    def all(self) -> list[RotatedName]:
        """Return all that there are: none in a folder that could never be listed. Raises `OSError`."""
        try:
            found = rotated_names(self._path)
        except PermissionError:
            if self._has_listed:
                raise
            return []
        self._has_listed = True
        return found

    def has(self, log: LogFile) -> bool:
        """Tell whether an open file is a rotated one, or was removed as such: one that is elsewhere may come back."""
        if log.was_rewritten():
            return False
        return log.is_unlinked() or any(name.file_id == log.file_id for name in self.all())

    def after(self, old: LogFile, known: set[FileId], now: float, position: FilePosition | None) -> list[LogFile]:
        """
        Open those that came after an open one, read to `position`, but for its copies and those that are `known`.

        From now on all rotated files are old. Raises `OSError` if one cannot be opened now; after `ROTATE_WAIT` it is
        lost, and the others are opened.
        """
        opened = self._open_newer(lambda found: self._choose_after(old, found, known), now)
        position = _position_in(old, position)
        after = []
        for log in opened:
            if position is not None and self._is_at(log, position):
                log.close()  # Copied by hand, or with ``copy`` in logrotate's configuration.
            else:
                after.append(log)
        return after

    def copies(self, log: LogFile, known: set[FileId], position: FilePosition | None, now: float) -> list[LogFile]:
        """
        Open the copies that hold what was not read of a file before it was truncated, the oldest first.

        Copies from before the one in which reading stopped are dropped; in that one it continues. See `after`.
        """
        opened = self._open_newer(
            lambda found: [name for name in found if name.file_id not in known and _key(name) not in self._older], now
        )
        logs = list(opened)
        if log.line_start == 0:
            return logs
        position = _position_in(log, position)
        try:
            places = [i for i, each in enumerate(logs) if position is not None and self._is_at(each, position)]
            if not places or position is None:
                self._counts.add(files_lost=bool(logs))  # The first copy is gone already.
                return logs
            place = places[0]
            skip_into(logs[place], LogReader(), position.offset)  # The path's own reader knows already what is open.
            logs[place].resume_at(position)
        except OSError:
            _close(logs)
            self._older -= set(map(_key, opened.values()))
            raise
        _close(logs[:place])
        return logs[place:]

    def since(self, point: ResumePoint, present: LogFile) -> tuple[list[LogFile], bool]:
        """Open those that came after a point, the oldest first; return also whether reading stopped in the first."""
        position = point.position
        newest = position.read_until - TIMES_MAY_LAG
        opened, _ = self._open(lambda found: [name for name in found if name.file_id != present.file_id][-MAX_ROTATED:])
        # Of a file of which nothing was read only the inode is known, and inodes are reused.
        same = [log for log in opened if self._is_at(log, position)]
        if same:
            is_numbered = opened[same[0]].number > 0
            # If numbered and dated rotations coexist, one scheme is a leftover of an old logrotate configuration:
            # those are compared by their times.
            later = list(opened.items())[list(opened).index(same[0]) + 1 :]
            wanted = [
                log
                for log, name in later
                if log not in same and (bool(name.number) == is_numbered or name.modified >= newest)
            ]
            wanted.insert(0, same[0])
        else:
            wanted = [log for log, name in opened.items() if name.modified >= newest]
        _close(log for log in opened if log not in wanted)
        if not same and (not point.is_same_run or _has_inode_of(present, position)):
            self._count_missing(position, opened, present)
        return wanted, bool(same)

    def _count_missing(self, position: FilePosition, opened: Iterable[LogFile], present: LogFile) -> None:
        """Count a file that is gone. The same inode is the same file, rewritten, or that of a later one."""
        if _has_inode_of(present, position):
            self._counts.add(truncations=position.offset > 0)
        elif position.offset > 0 or not any(_has_inode_of(each, position) for each in opened):
            self._counts.add(files_lost=1)

    def _is_at(self, log: LogFile, position: FilePosition) -> bool:
        """Tell whether a file is that of a position; one that cannot be read is not, and is counted."""
        try:
            return log.is_at(position)
        except OSError:
            self._counts.add(read_errors=1)
            return False

    def _choose_after(self, old: LogFile, found: list[RotatedName], known: set[FileId]) -> list[RotatedName]:
        """Choose those that are newer than a file that may be among those found."""
        place = next((index for index, name in enumerate(found) if name.file_id == old.file_id), None)
        if place is None and old.is_in_place():
            return []  # The path is a link that leads elsewhere now; what is beside its new target is older.
        first_number = found[place].number if place is not None else 0
        return [
            name
            for index, name in enumerate(found)
            if name.file_id not in known
            # Numbered files are ordered by number. Others are identified by inode and path, since inodes are reused.
            and (index > (place or 0) if first_number and name.number else _key(name) not in self._older)
        ]

    def _open_newer(self, choose: _Choice, now: float) -> dict[LogFile, RotatedName]:
        """Open those that are chosen, or none as long as one fails that may be readable soon."""
        may_wait = self._failing_since is None or now - self._failing_since < ROTATE_WAIT
        try:
            opened, found = self._open(choose, may_wait=may_wait)
        except OSError:
            if self._failing_since is None:
                self._failing_since = now
            raise
        self._failing_since = None
        self._older = {_key(name) for name in found}
        return opened

    def _open(self, choose: _Choice, *, may_wait: bool = False) -> tuple[dict[LogFile, RotatedName], list[RotatedName]]:
        """Open those that are chosen of all rotated files, which may be renamed meanwhile; return also all names."""
        tries = _TRIES
        while True:
            tries -= 1
            found = self.all()
            chosen = choose(found)
            opened: dict[LogFile, RotatedName] = {}
            try:
                for name in chosen:
                    log = self._open_one(name, may_wait=may_wait)
                    opened |= {} if log is None else {log: name}
            except OSError:
                _close(opened)
                raise
            missing = len(chosen) - len(opened)
            if not missing or not tries:
                self._counts.add(files_lost=missing)
                return opened, found
            _close(opened)

    def _open_one(self, name: RotatedName, *, may_wait: bool) -> LogFile | None:
        """
        Open the file that had this name when the folder was listed, if the name is still that file's.

        Raises:
            OSError: It cannot be opened now, and may be waited for. Permissions are not waited for.
        """
        try:
            log = LogFile(name.path)
        except FileNotFoundError:
            return None
        except OSError as error:
            if may_wait and not isinstance(error, PermissionError | NotRegularError):
                raise
            self._counts.add(read_errors=1)
            return None
        if log.file_id == name.file_id:
            return log
        log.close()
        return None


def _close(logs: Iterable[LogFile]) -> None:
    for log in logs:
        log.close()


def _key(name: RotatedName) -> tuple[FileId, str | float]:
    """Return what identifies a file permanently: numbered ones change their names, others do not; inodes are reused."""
    return (name.file_id, name.modified if name.number else name.path)


def _has_inode_of(log: LogFile, position: FilePosition) -> bool:
    """Tell whether a file has the inode of a position: it is that file, or got its inode later."""
    return FileId(position.device, position.inode) == log.file_id


def _position_in(log: LogFile, position: FilePosition | None) -> FilePosition | None:
    return position if position and position.offset > 0 and _has_inode_of(log, position) else None
