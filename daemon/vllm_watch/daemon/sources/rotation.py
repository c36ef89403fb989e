# SPDX-License-Identifier: Apache-2.0
"""
The rotated files of a log: which of them came after a file that is open.

This module handles rotation: a log may be rotated several times between two polls, and while its rotated files are
listed and opened. File times decide which file is newer only if nothing else shows it, because clocks can be set back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from vllm_watch.daemon.sources.checkpoint import FilePosition
from vllm_watch.daemon.sources.log_file import LogFile
from vllm_watch.daemon.sources.open_file import FileId, NotRegularError
from vllm_watch.daemon.sources.read_counts import ReadCounts
from vllm_watch.daemon.sources.rotated_names import RotatedName, rotated_names


MAX_ROTATED = 64
"""Rotated files that are searched for the one that was read last."""

ROTATE_WAIT = 30.0
"""Seconds for which an unchanged file is still polled: a busy vLLM prints statistics every 10 s."""

TIMES_MAY_LAG = 0.05
"""Seconds by which a file's time may be before the moment at which it was written."""

_TRIES = 3

_Choice = Callable[[list[RotatedName]], list[RotatedName]]


@dataclass(slots=True)
class RotatedFile:
    """A rotated file that was found and opened."""

    name: RotatedName
    log: LogFile


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
        self._older = _OlderFiles(self.all())

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

    def after(self, old: LogFile, known: set[FileId], now: float) -> list[RotatedFile]:
        """Open those that came after an open one, as `new` does."""
        return self._open_newer(lambda found: self._choose_after(old, found, known), now)

    def new(self, known: set[FileId], now: float) -> list[RotatedFile]:
        """
        Open those that were not there before; from now on all rotated files are old.

        Args:
            known: Files that are not opened.
            now: The time.

        Raises:
            OSError: One cannot be opened now. After `ROTATE_WAIT` it is lost, and the others are opened.
        """
        return self._open_newer(
            lambda found: [name for name in found if name.file_id not in known and name not in self._older], now
        )

    def put_back(self, opened: list[RotatedFile]) -> None:
        """Close what `new` has opened: it is new again."""
        _close(opened)
        for each in opened:
            self._older.forget(each.name)

    def last(self, known: set[FileId]) -> list[RotatedFile]:
        """Open the last `MAX_ROTATED` without the known ones; what cannot be opened is lost."""
        opened, _ = self._open(lambda found: [name for name in found if name.file_id not in known][-MAX_ROTATED:])
        return opened

    def is_at(self, file: RotatedFile, position: FilePosition) -> bool:
        """Tell whether a file is that of a position; one that cannot be read is not, and is counted."""
        try:
            return file.log.is_at(position)
        except OSError:
            self._counts.read_errors += 1
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
            and (index > (place or 0) if first_number and name.number else name not in self._older)
        ]

    def _open_newer(self, choose: _Choice, now: float) -> list[RotatedFile]:
        """Open those that are chosen, or none as long as one fails that may be readable soon."""
        may_wait = self._failing_since is None or now - self._failing_since < ROTATE_WAIT
        try:
            opened, found = self._open(choose, may_wait=may_wait)
        except OSError:
            if self._failing_since is None:
                self._failing_since = now
            raise
        self._failing_since = None
        self._older = _OlderFiles(found)
        return opened

    def _open(self, choose: _Choice, *, may_wait: bool = False) -> tuple[list[RotatedFile], list[RotatedName]]:
        """Open those that are chosen of all rotated files, which may be renamed meanwhile; return also all names."""
        tries = _TRIES
        while True:
            tries -= 1
            found = self.all()
            chosen = choose(found)
            opened: list[RotatedFile] = []
            try:
                for name in chosen:
                    log = self._open_one(name, may_wait=may_wait)
                    opened += [] if log is None else [RotatedFile(name, log)]
            except OSError:
                _close(opened)
                raise
            missing = len(chosen) - len(opened)
            if not missing or not tries:
                self._counts.files_lost += missing
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
            self._counts.read_errors += 1
            return None
        if log.file_id == name.file_id:
            return log
        log.close()
        return None


class _OlderFiles:
    """Rotated files that were there at some moment."""

    def __init__(self, found: Iterable[RotatedName]) -> None:
        self._keys = {_key(name) for name in found}

    def forget(self, name: RotatedName) -> None:
        self._keys.discard(_key(name))

    def __contains__(self, name: RotatedName) -> bool:
        return _key(name) in self._keys


def _close(files: Iterable[RotatedFile]) -> None:
    for file in files:
        file.log.close()


def _key(name: RotatedName) -> tuple[FileId, str | float]:
    """Return what identifies a file permanently: numbered ones change their names, others do not; inodes are reused."""
    return (name.file_id, name.modified if name.number else name.path)


def and_newer(first: RotatedFile, opened: list[RotatedFile], stopped_at: float) -> list[RotatedFile]:
    """
    Return a rotated file and those that came after it.

    Args:
        first: The file.
        opened: All, in order.
        stopped_at: When the first one was read last, in seconds since the epoch.
    """
    is_numbered = first.name.number > 0
    return [
        first,
        *(
            each
            for each in opened[opened.index(first) + 1 :]
            # If numbered and dated rotations coexist, one scheme is a leftover of an old logrotate configuration:
            # those are compared by their times.
            if bool(each.name.number) == is_numbered or each.name.modified >= stopped_at - TIMES_MAY_LAG
        ),
    ]
