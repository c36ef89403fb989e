# SPDX-License-Identifier: Apache-2.0
"""What processes have open: the files, pipes and terminals that they write to, and their sockets."""

from __future__ import annotations

import os
import re
import stat

from collections.abc import Iterable
from typing import Literal, NamedTuple

from vllm_watch.daemon.discovery.processes import Process, ProcFiles, is_readable


OutputKind = Literal["file", "pipe", "socket", "terminal", "null", "other", "closed", "denied"]
Access = Literal["ok", "denied", "elsewhere"]

_PIPE_OR_SOCKET = re.compile(r"(pipe|socket):\[([0-9]+)\]")
_DELETED = " (deleted)"


class Output(NamedTuple):
    """
    What a file descriptor is open on.

    `path` of a file is where this process finds it if `access` is ``ok``, else where the other process has it. `inode`
    is that of a pipe or socket.
    """

    kind: OutputKind
    path: str = ""
    inode: int = 0
    access: Access = "ok"
    is_appending: bool = False
    is_deleted: bool = False
    is_inside_container: bool = False


def output_of(files: ProcFiles, pid: int, descriptor: int) -> Output:
    """Return what a process writes to."""
    link = files.path(pid, f"fd/{descriptor}")
    try:
        target = os.readlink(link)
    except PermissionError:
        return Output("denied")
    except OSError:
        return Output("closed")
    found = _PIPE_OR_SOCKET.fullmatch(target)
    if found is not None:
        return Output("pipe" if found[1] == "pipe" else "socket", inode=int(found[2]))
    if target == os.devnull:
        return Output("null")
    if target.startswith(("/dev/pts/", "/dev/tty", "/dev/console")):
        return Output("terminal", target.removesuffix(_DELETED))
    return _file(files, pid, descriptor, target)


def files_written(files: ProcFiles, pid: int) -> list[Output]:
    """Return the files that a process writes to, standard output last, without standard error."""
    found = []
    named = [descriptor for descriptor in _descriptors(files, pid) if descriptor > 2]
    for descriptor in (*named, 1):
        output = output_of(files, pid, descriptor)
        if output.kind == "file" and _flags(files, pid, descriptor) & os.O_ACCMODE != os.O_RDONLY:
            found.append(output)
    return found


def reader_of(files: ProcFiles, inode: int, processes: Iterable[Process]) -> Process | None:
    """Return the process that has a pipe as its standard input, `None` if it is not visible."""
    pipe = f"pipe:[{inode}]"
    for process in processes:
        if files.link(process.pid, "fd/0") == pipe:
            return process
    return None


def sockets_of(files: ProcFiles, pids: Iterable[int]) -> frozenset[int] | None:
    """Return the inodes of the sockets_of that processes have open, `None` if reading them is not permitted."""
    found: set[int] = set()
    is_denied = False
    for pid in pids:
        try:
            names = files.names(pid, "fd")
        except PermissionError:
            is_denied = True
            continue
        except OSError:
            continue
        links = (_PIPE_OR_SOCKET.fullmatch(files.link(pid, f"fd/{name}")) for name in names)
        found.update(int(link[2]) for link in links if link is not None and link[1] == "socket")
    return None if is_denied and not found else frozenset(found)


def _file(files: ProcFiles, pid: int, descriptor: int, target: str) -> Output:
    path = target.removesuffix(_DELETED)
    try:
        status = os.stat(files.path(pid, f"fd/{descriptor}"))
    except OSError:
        status = None
    if target.endswith(_DELETED) if status is None else status.st_nlink == 0:
        return Output("file", path, is_deleted=True, is_inside_container=not _is_same_folder(files, pid, path))
    if status is None:
        return Output("file", path, access="elsewhere")
    if not stat.S_ISREG(status.st_mode):
        return Output("other", path)
    is_appending = bool(_flags(files, pid, descriptor) & os.O_APPEND)
    found, access = _reached(files, pid, target, status)
    return Output("file", found, access=access, is_appending=is_appending, is_inside_container=found != target)


def _reached(files: ProcFiles, pid: int, path: str, status: os.stat_result) -> tuple[str, Access]:
    """Return where this process finds a file of another one, perhaps in a container, and whether it may read it."""
    is_denied = False
    for candidate in (path, files.path(pid, f"root{path}")):
        try:
            found = os.stat(candidate)
        except PermissionError:
            is_denied = True
            continue
        except OSError:
            continue
        if os.path.samestat(found, status):
            return (candidate, "ok") if is_readable(candidate) else (path, "denied")
    return path, "denied" if is_denied else "elsewhere"


def _is_same_folder(files: ProcFiles, pid: int, path: str) -> bool:
    """Whether the folder of a path is the same one for another process, which may be in a container."""
    folder = os.path.dirname(path)
    try:
        return os.path.samefile(folder, files.path(pid, f"root{folder}"))
    except OSError:
        return False


def _flags(files: ProcFiles, pid: int, descriptor: int) -> int:
    for line in files.text(pid, f"fdinfo/{descriptor}").splitlines():
        name, _, value = line.partition(":")
        if name == "flags":
            return int(value, 8)
    return 0


def _descriptors(files: ProcFiles, pid: int) -> list[int]:
    try:
        return sorted(int(name) for name in files.names(pid, "fd"))
    except (OSError, ValueError):
        return []
