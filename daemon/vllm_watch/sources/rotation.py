# SPDX-License-Identifier: Apache-2.0
"""
The rotated files of a followed path: which of them came after a file that is open.

A log may be rotated more than once between two looks, and copied instead of renamed. No clock is asked which file is
newer, as long as something else tells: clocks are set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from vllm_watch.sources.log_file import FileId, OpenLog
from vllm_watch.sources.rotated_names import Sibling, siblings


MAX_SIBLINGS = 64
"""Rotated files that are looked through for the one that was read last."""

TIMES_MAY_LAG = 0.05
"""Seconds by which a file's time may be before the moment at which it was written."""

_TRIES = 3

_Choice = Callable[[list[Sibling]], list[Sibling]]


@dataclass(slots=True)
class FollowCounts:
    """What has been read and lost of a path since it is followed."""

    lines: int = 0
    size: int = 0
    truncations: int = 0
    rotations: int = 0
    files_lost: int = 0
    long_lines: int = 0
    nul_bytes: int = 0
    skipped_bytes: int = 0
    read_errors: int = 0


@dataclass(slots=True)
class Opened:
    """A rotated file that was found and opened."""

    sibling: Sibling
    log: OpenLog


class RotatedFiles:
    """
    Finds and opens the rotated files of one path. It remembers those that were there before the path's present file.

    Args:
        path: The path. Its file is to be opened afterwards: what is rotated from then on is not remembered.
        counts: Where it is counted what could not be opened.
    """

    def __init__(self, path: str, counts: FollowCounts) -> None:
        self._path = path
        self._counts = counts
        self._has_listed = False
        self._older = _Older(self.all())

    def all(self) -> list[Sibling]:
        """Return all that there are. A folder that never let itself be listed has none; raises `OSError` else."""
        try:
            found = siblings(self._path)
        except PermissionError:
            if self._has_listed:
                raise
            return []
        self._has_listed = True
        return found

    def after(self, old: OpenLog, known: set[FileId]) -> list[Opened]:
        """Open those that came after an open one, without the known ones; from now on all of them are old."""
        return self._open(lambda found: self._choose_after(old, found, known), is_all_old=True)

    def new(self, known: set[FileId]) -> list[Opened]:
        """Open those that were not there before, without the known ones; from now on all of them are old."""
        return self._open(
            lambda found: [s for s in found if s.file_id not in known and not self._older.knows(s)], is_all_old=True
        )

    def put_back(self, opened: Iterable[Opened]) -> None:
        """Close what `new` has opened: it is new again."""
        for each in opened:
            each.log.close()
            self._older.forget(each.sibling)

    def last(self, known: set[FileId]) -> list[Opened]:
        """Open the last `MAX_SIBLINGS` without the known ones."""
        return self._open(lambda found: [s for s in found if s.file_id not in known][-MAX_SIBLINGS:], is_all_old=False)

    def _choose_after(self, old: OpenLog, found: list[Sibling], known: set[FileId]) -> list[Sibling]:
        place = next((index for index, sibling in enumerate(found) if sibling.file_id == old.file_id), None)
        if place is None and old.is_in_place():
            return []  # The path is a link that leads elsewhere now; what is beside its new target is older.
        first_number = found[place].number if place is not None else 0
        return [
            sibling
            for index, sibling in enumerate(found)
            if sibling.file_id not in known
            # Numbers tell which of two numbered files is newer; an inode, perhaps used again, tells it of the others.
            and (index > (place or 0) if first_number and sibling.number else not self._older.knows(sibling))
        ]

    def _open(self, choose: _Choice, *, is_all_old: bool) -> list[Opened]:
        """Open what is chosen of all rotated files; they may be renamed meanwhile."""
        tries = _TRIES
        while True:
            tries -= 1
            found = self.all()
            wanted = choose(found)
            opened = [Opened(sibling, log) for sibling in wanted if (log := self._open_one(sibling)) is not None]
            missing = len(wanted) - len(opened)
            if not missing or not tries:
                self._counts.files_lost += missing
                if is_all_old:
                    self._older = _Older(found)
                return opened
            for each in opened:
                each.log.close()

    def _open_one(self, sibling: Sibling) -> OpenLog | None:
        try:
            log = OpenLog(sibling.path)
        except FileNotFoundError:
            return None
        except OSError:
            self._counts.read_errors += 1
            return None
        if log.file_id == sibling.file_id:
            return log
        log.close()
        return None


class _Older:
    """Rotated files that were there at some moment."""

    def __init__(self, found: Iterable[Sibling]) -> None:
        self._keys = {_key(sibling) for sibling in found}

    def forget(self, sibling: Sibling) -> None:
        self._keys.discard(_key(sibling))

    def knows(self, sibling: Sibling) -> bool:
        return _key(sibling) in self._keys


def _key(sibling: Sibling) -> tuple[FileId, str | float]:
    """Return what tells a file for good: numbered ones change their names, others do not; inodes are used again."""
    return (sibling.file_id, sibling.modified if sibling.number else sibling.path)


def from_place(first: Opened, opened: list[Opened], stopped_at: float) -> list[Opened]:
    """
    Return a rotated file and those that came after it.

    Args:
        first: The file.
        opened: All, in order.
        stopped_at: When the first one was read last, in seconds since the epoch.
    """
    is_numbered = first.sibling.number > 0
    return [
        first,
        *(
            each
            for each in opened[opened.index(first) + 1 :]
            # Of two ways of naming one is of former times: numbers do not tell of files that have none.
            if bool(each.sibling.number) == is_numbered or each.sibling.modified >= stopped_at - TIMES_MAY_LAG
        ),
    ]
