# SPDX-License-Identifier: Apache-2.0
"""
What the kernel shows of processes under ``/proc``, as values.

Of command lines and environments only what the closed lists name leaves this module: no key, no token. A process may
end at any moment, and another user's shows little: what cannot be read is `None`, `denied` or not there.
"""

from __future__ import annotations

import grp
import os
import pwd
import re
import stat

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from vllm_watch.discovery.cgroup import Owner, owner_of
from vllm_watch.discovery.command_line import ServeCommand, arguments_of, parse_arguments
from vllm_watch.discovery.patience import Made, Patience
from vllm_watch.discovery.sockets import Listener, listeners, own_addresses
from vllm_watch.support.errors import DiscoveryError


OutputKind = Literal["file", "pipe", "socket", "terminal", "null", "other", "closed", "denied"]
Access = Literal["ok", "denied", "elsewhere"]

MAX_TEXT = 4 * 1024 * 1024
"""So many bytes of a file are read at most: of a table of connections, of a server's own configuration."""

_PIPE_OR_SOCKET = re.compile(r"(pipe|socket):\[([0-9]+)\]")
_DELETED = " (deleted)"
_TITLE = re.compile(rb"VLLM::([A-Za-z]+)")

_HIDEPID = re.compile(r"(?:^|,)hidepid=(\w+)")


class Process(NamedTuple):
    """
    A process: `started` in clock ticks since the boot tells it from a later one of the same number.

    `command` is there for what looks like a server, `title` for the processes that vLLM names: ``EngineCore``,
    ``APIServer``, ``Worker``.
    """

    pid: int
    parent: int
    started: int
    name: str
    title: str = ""
    command: ServeCommand | None = None


class ProcessList(NamedTuple):
    """All processes that can be seen, and of how many of them not even the command line can be read."""

    processes: tuple[Process, ...]
    unreadable: int
    hidepid: str | None


class Output(NamedTuple):
    """
    What a file descriptor is open on.

    `path` of a file is where this process finds it if `access` is ``ok``, else where the other one has it. `inode` is
    that of a pipe or socket. `holders` says who may read a file: ``root:adm 0640``.
    """

    kind: OutputKind
    path: str = ""
    inode: int = 0
    access: Access = "ok"
    is_appending: bool = False
    is_deleted: bool = False
    is_inside_container: bool = False
    group: str = ""
    holders: str = ""


class Environment(NamedTuple):
    """What a server's environment says that is of use here; `journal_inode` is that of the stream to the journal."""

    has_api_key: bool = False
    journal_inode: int = 0
    logging_level: str = "INFO"
    configures_logging: bool = True


class Network(NamedTuple):
    """
    A network namespace: whether it is this process's own, what listens in it, and
    its own IPv4 addresses without loopback; none where they cannot be believed.
    """

    is_own: bool = True
    listeners: tuple[Listener, ...] = ()
    addresses: tuple[str, ...] = ()


class PublishedPort(NamedTuple):
    """A port of a container that the host forwards: the host's end, and the container's."""

    host: str
    port: int
    container_host: str
    container_port: int


class Proc:
    """
    The process table.

    Args:
        root: Where it is mounted.
    """

    def __init__(self, root: Path = Path("/proc")) -> None:
        self._root = str(root)
        self._listing, self._looking = Patience(), Patience()

    @property
    def hanging_pids(self) -> frozenset[int]:
        """The numbers of the processes of which nothing can be learned now: whoever asks waits for ever."""
        return self._listing.hanging_pids | self._looking.hanging_pids

    def look_at_each(self, looks: Mapping[int, Callable[[], Made]]) -> dict[int, Made]:
        """Look at processes, by their numbers, and pass over those at which that hangs."""
        return self._looking.each(looks)

    def processes(self) -> ProcessList:
        """
        Return all processes: the part of the work that grows with the machine.

        Raises:
            DiscoveryError: There is no process table.
        """
        numbers = [int(name) for name in self._names() if name.isdigit()]
        found = self._listing.each({number: partial(self._process_or_why, number) for number in numbers})
        processes = tuple(each for each in found.values() if isinstance(each, Process))
        return ProcessList(processes, sum(each == "denied" for each in found.values()), self._hidepid())

    def is_running(self, process: Process) -> bool:
        """Whether a process is still there, and not another one under its number."""
        try:
            return self._process(process.pid).started == process.started
        except (OSError, ValueError):
            return False

    def command(self, pid: int) -> ServeCommand | None:
        """Return what a server was told, also in its configuration file, if that can be read."""
        arguments = arguments_of(_words(self._bytes(pid, "cmdline")))
        if arguments is None:
            return None
        command = parse_arguments(arguments)
        if command.config_file is None:
            return command
        path = os.path.join(self._link(pid, "cwd"), command.config_file)
        config = self._text_within(pid, path)
        return None if config is None else parse_arguments(arguments, config)

    def user(self, pid: int) -> int | None:
        """Return the number of the user whom a process runs as."""
        try:
            return os.stat(f"{self._root}/{pid}").st_uid
        except OSError:
            return None

    def owner(self, pid: int) -> Owner:
        """Return who runs a process."""
        return owner_of(self._text(pid, "cgroup"))

    def environment(self, pid: int) -> Environment | None:
        """Return what a process's environment says, `None` if it may not be read."""
        try:
            content = _read(f"{self._root}/{pid}/environ")
        except OSError:
            return None
        entries = dict(entry.partition(b"=")[::2] for entry in content.split(b"\0"))
        inode = entries.get(b"JOURNAL_STREAM", b"").partition(b":")[2]
        return Environment(
            has_api_key=bool(entries.get(b"VLLM_API_KEY")),
            journal_inode=int(inode) if inode.isdigit() else 0,
            logging_level=_level(entries.get(b"VLLM_LOGGING_LEVEL", b"INFO")),
            configures_logging=entries.get(b"VLLM_CONFIGURE_LOGGING", b"1") != b"0",
        )

    def output(self, pid: int, descriptor: int) -> Output:
        """Return what a process writes to."""
        link = f"{self._root}/{pid}/fd/{descriptor}"
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
        return self._file(pid, descriptor, target)

    def files_written(self, pid: int) -> list[Output]:
        """Return the files that a process writes to, standard output last; on standard error it only complains."""
        found = []
        named = [descriptor for descriptor in self._descriptors(pid) if descriptor > 2]
        for descriptor in (*named, 1):
            output = self.output(pid, descriptor)
            if output.kind == "file" and self._flags(pid, descriptor) & os.O_ACCMODE != os.O_RDONLY:
                found.append(output)
        return found

    def reader_of(self, inode: int, processes: Iterable[Process]) -> Process | None:
        """Return the process that has a pipe as its standard input, if that can be seen."""
        pipe = f"pipe:[{inode}]"
        for process in processes:
            if self._link(process.pid, "fd/0") == pipe:
                return process
        return None

    def sockets(self, pids: Iterable[int]) -> frozenset[int] | None:
        """Return the inodes of the sockets that some processes have open, `None` if they may not be looked at."""
        found: set[int] = set()
        is_denied = False
        for pid in pids:
            try:
                names = os.listdir(f"{self._root}/{pid}/fd")
            except PermissionError:
                is_denied = True
                continue
            except OSError:
                continue
            links = (_PIPE_OR_SOCKET.fullmatch(self._link(pid, f"fd/{name}")) for name in names)
            found.update(int(link[2]) for link in links if link is not None and link[1] == "socket")
        return None if is_denied and not found else frozenset(found)

    def network(self, pid: int) -> Network:
        """Return a process's network namespace."""
        own, other = self._link("self", "ns/net"), self._link(pid, "ns/net")
        if own and other:
            is_own = own == other
        else:  # Another user's links are not shown, but its addresses are.
            is_own = self._text("self", "net/fib_trie") == self._text(pid, "net/fib_trie")
        listening = [*self._listeners(pid, "tcp"), *self._listeners(pid, "tcp6")]
        addresses = tuple(own_addresses(self._text(pid, "net/fib_trie"))) if is_own or self._is_of_system(pid) else ()
        return Network(is_own, tuple(listening), addresses)

    def _is_of_system(self, pid: int) -> bool:
        """Whether a process's network may be believed: in a user namespace of one's own anybody takes any address."""
        own, other = self._link("self", "ns/user"), self._link(pid, "ns/user")
        return not own or not other or own == other

    def published_ports(self, processes: Iterable[Process]) -> list[PublishedPort]:
        """Return the ports of containers that Docker forwards by its proxy."""
        found = []
        for process in processes:
            if process.name == "docker-proxy" and self.user(process.pid) in {0, os.geteuid()}:
                words = _words(self._bytes(process.pid, "cmdline"))
                said = dict(zip(words[1::2], words[2::2], strict=False))
                try:
                    port, inside = int(said["-host-port"]), int(said["-container-port"])
                    found.append(PublishedPort(said["-host-ip"], port, said["-container-ip"], inside))
                except (KeyError, ValueError):
                    continue
        return found

    def _names(self) -> list[str]:
        try:
            return os.listdir(self._root)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise DiscoveryError(f"{self._root}, where the kernel lists processes, cannot be read: {reason}") from error

    def _process_or_why(self, pid: int) -> Process | Literal["denied", "gone"]:
        try:
            return self._process(pid)
        except PermissionError:
            return "denied"
        except (OSError, ValueError):
            return "gone"

    def _process(self, pid: int) -> Process:
        content = _read(f"{self._root}/{pid}/stat").decode(errors="replace")
        name = content[content.index("(") + 1 : content.rindex(")")]
        fields = content[content.rindex(")") + 2 :].split()
        parent, started = int(fields[1]), int(fields[19])
        line = _read(f"{self._root}/{pid}/cmdline")
        title = _TITLE.match(line)
        arguments = arguments_of(_words(line)) if b"vllm" in line else None
        command = None if arguments is None else parse_arguments(arguments)
        return Process(pid, parent, started, name, title[1].decode() if title else "", command)

    def _hidepid(self) -> str | None:
        """Return how other users' processes are hidden here, `None` if they are not."""
        for line in self._text("self", "mounts").splitlines():
            _, folder, kind, options, *_ = (*line.split(), "", "", "", "")
            found = _HIDEPID.search(options)
            if kind == "proc" and folder == self._root and found is not None and found[1] not in {"0", "off"}:
                return found[1]
        return None

    def _file(self, pid: int, descriptor: int, target: str) -> Output:
        path = target.removesuffix(_DELETED)
        try:
            status = os.stat(f"{self._root}/{pid}/fd/{descriptor}")
        except OSError:
            return Output("file", path, is_deleted=target.endswith(_DELETED), access="elsewhere")
        if not stat.S_ISREG(status.st_mode):
            return Output("other", path)
        is_appending = bool(self._flags(pid, descriptor) & os.O_APPEND)
        if status.st_nlink == 0:
            return Output("file", path, is_appending=is_appending, is_deleted=True)
        found, access = self._reached(pid, target, status)
        return Output(
            "file",
            found,
            access=access,
            is_appending=is_appending,
            is_inside_container=found != target,
            group=_group(status.st_gid),
            holders=f"{user_name(status.st_uid)}:{_group(status.st_gid)} {stat.S_IMODE(status.st_mode):04o}",
        )

    def _reached(self, pid: int, path: str, status: os.stat_result) -> tuple[str, Access]:
        """Return where this process finds another one's file, which may be in a container, and whether it may read."""
        is_denied = False
        for candidate in (path, f"{self._root}/{pid}/root{path}"):
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

    def _flags(self, pid: int, descriptor: int) -> int:
        for line in self._text(pid, f"fdinfo/{descriptor}").splitlines():
            name, _, value = line.partition(":")
            if name == "flags":
                return int(value, 8)
        return 0

    def _descriptors(self, pid: int) -> list[int]:
        try:
            return sorted(int(name) for name in os.listdir(f"{self._root}/{pid}/fd"))
        except (OSError, ValueError):
            return []

    def _listeners(self, pid: int, table: str) -> Iterator[Listener]:
        return listeners(self._text(pid, f"net/{table}").splitlines())

    def _text_within(self, pid: int, path: str) -> str | None:
        """Return what stands in another process's file, by the path that it has there."""
        try:
            return _read(f"{self._root}/{pid}/root{path}").decode(errors="replace")
        except OSError:
            return None

    def _link(self, pid: int | str, name: str) -> str:
        try:
            return os.readlink(f"{self._root}/{pid}/{name}")
        except OSError:
            return ""

    def _text(self, pid: int | str, name: str) -> str:
        return self._bytes(pid, name).decode(errors="replace")

    def _bytes(self, pid: int | str, name: str) -> bytes:
        try:
            return _read(f"{self._root}/{pid}/{name}")
        except OSError:
            return b""


def is_readable(path: str) -> bool:
    """Whether a file can be opened; `os.access` would leave out what capabilities allow."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY))
    except OSError:
        return False
    return True


def user_name(number: int) -> str:
    """Return a user's name, or the number of one who has none."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _group(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)


def _read(path: str) -> bytes:
    # O_NONBLOCK: a path that another process names may be a pipe.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    with open(descriptor, "rb") as file:
        return file.read(MAX_TEXT)


def _words(line: bytes) -> list[str]:
    return os.fsdecode(line).rstrip("\0").split("\0")


def _level(value: bytes) -> str:
    level = value.decode(errors="replace").upper()
    return level if level in {"DEBUG", "WARNING", "ERROR", "CRITICAL"} else "INFO"
