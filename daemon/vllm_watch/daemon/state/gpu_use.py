# SPDX-License-Identifier: Apache-2.0
"""
Which server uses which GPU: what the driver says of processes and the configuration of GPUs, joined.

A server keeps its GPUs while it is down, until its next start shows others: what is known of a GPU matters most then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from vllm_watch.daemon.catalog.gpu_texts import GpuState
from vllm_watch.daemon.catalog.reasons import GpuReason
from vllm_watch.daemon.state.event_history import EventHistory
from vllm_watch.daemon.state.gpu_report import GpuReading, GpuReport, ServerGpu, is_instance
from vllm_watch.daemon.state.kept_facts import KnownUse
from vllm_watch.daemon.state.snapshot import ServerEvent


UUIDS = ("GPU-", "MIG-", "AMD-")
"""How a UUID, or AMD's serial number, begins: it names the GPU also where no driver says which there are."""


class GpuUser(NamedTuple):
    """
    A watched server, as far as its GPUs are concerned.

    Args:
        name: Its name.
        gpus: Those of its configuration: UUIDs, numbers or PCI addresses.
        is_here: Whether it runs on the machine whose GPUs are read, as far as that is known.
        start: Tells a start of it from other ones; `None` while none of its processes is found.
        pids: Its processes that are on a GPU, as the driver numbers them; `None` if that is not known.
    """

    name: str
    gpus: tuple[str, ...] = ()
    is_here: bool = False
    start: tuple[int, int] | None = None
    pids: frozenset[int] | None = None


class GpuUsers(NamedTuple):
    """
    All watched servers.

    Args:
        servers: Each of them.
        gone: Processes of the reading that have ended since: a driver is asked for processes less often than for all
            else.
    """

    servers: Sequence[GpuUser]
    gone: frozenset[int] = frozenset()


class GpuUse(NamedTuple):
    """
    What a reading says of the GPUs of one server.

    Args:
        at: When the reading was complete.
        reason: ``ok``, or why it has none; `None` if this machine's driver is no source for the server.
        gpus: The GPUs that it uses, in the order of their numbers; those that cannot be read last.
    """

    at: float
    reason: GpuReason | None
    gpus: tuple[ServerGpu, ...] = ()


class GpuAssignments:
    """
    Knows which server uses which GPU, from reading to reading. Not thread-safe.

    Args:
        known: What an earlier run of the daemon knew.
    """

    def __init__(self, known: Iterable[KnownUse] = ()) -> None:
        self._by_process = {each.server: each for each in known}
        self._was_read = bool(self._by_process)
        """Whether the driver has shown any GPU, now or to an earlier run."""
        self._named: dict[str, Mapping[str, str]] = {}
        """What the numbers and addresses in each server's configuration named last, as UUIDs."""
        self._divided: dict[str, str] = {}
        """The GPU that each MIG instance was last seen to be a part of."""

    def known(self) -> tuple[KnownUse, ...]:
        """Return what the processes of servers have shown, for a later run of the daemon."""
        return tuple(self._by_process.values())

    def uses(self, report: GpuReport | None, all_users: GpuUsers, now: float) -> dict[str, GpuUse]:
        """
        Return what a reading says of each server, by its name; servers that are not among these are forgotten.

        Args:
            report: The reading; `None` if no driver is read, and only the configuration says anything.
            all_users: The servers.
            now: The time.
        """
        users = all_users.servers
        gpus = () if report is None else tuple(_without(gpu, all_users.gone) for gpu in report.gpus)
        self._divided |= _divided(gpus)
        names = {user.name for user in users if report is not None}  # Without a driver nobody sees the next start.
        self._by_process = {name: known for name, known in self._by_process.items() if name in names}
        self._named = {user.name: self._named_by(user, gpus) for user in users}
        of_process = _gpus_of_processes(gpus)
        for user in users:
            self._note_processes(user, of_process)
        used = {user.name: self._gpus_of(user) for user in users}
        readings = {gpu.gpu: gpu for gpu in gpus}
        counts = Counter(gpu for of_server in used.values() for gpu in of_server)
        other_memory = _other_memory(gpus, used, users)
        self._was_read |= bool(gpus)
        uses = {}
        for user in users:
            unread = sorted(used[user.name] - readings.keys())
            of_server = tuple(
                ServerGpu(
                    gpu=gpu,
                    how="config" if user.gpus else "pid",
                    is_shared=counts[gpu] > 1,
                    memory=_memory(user, readings.get(gpu)),
                    reading=readings.get(gpu),
                    other_memory=other_memory.get(gpu),
                )
                for gpu in (*(gpu for gpu in readings if gpu in used[user.name]), *unread)
            )
            reason = _reason(user, of_server, report, was_read=self._was_read)
            uses[user.name] = GpuUse(now if report is None else report.at, reason, of_server)
        return uses

    def _named_by(self, user: GpuUser, gpus: Sequence[GpuReading]) -> Mapping[str, str]:
        """
        Return which GPUs a server's configuration names.

        A number means what it meant first: when one GPU is lost, a driver numbers those after it anew, but each server
        is still on the same ones.
        """
        before, known = self._named.get(user.name, {}), {gpu.gpu for gpu in gpus}
        found = {}
        for name in user.gpus:
            last = name if name.startswith(UUIDS) else before.get(name)
            stays = last == name or (name.isdigit() and last in known)
            gpu = last if stays else _uuid_of(name, gpus) or last
            if gpu is not None:
                found[name] = gpu
        return found

    def _note_processes(self, user: GpuUser, of_process: Mapping[int, Collection[str]]) -> None:
        """Keep the GPUs that a server's processes are on; another start forgets those of the one before."""
        found = frozenset(gpu for pid in user.pids or () for gpu in of_process.get(pid, ()))
        if user.start is None or not found:
            return
        before = self._by_process.get(user.name)
        if before is not None and before.start == user.start:
            found |= before.gpus
        self._by_process[user.name] = KnownUse(user.name, user.start, found)

    def _gpus_of(self, user: GpuUser) -> frozenset[str]:
        if user.gpus:  # Whoever is on an instance is on its GPU, which alone has power, temperature and errors.
            named = self._named[user.name].values()
            return frozenset([*named, *(self._divided[gpu] for gpu in named if gpu in self._divided)])
        known = self._by_process.get(user.name)
        return frozenset() if known is None else known.gpus


def _other_memory(
    gpus: Sequence[GpuReading], used: Mapping[str, frozenset[str]], users: Sequence[GpuUser]
) -> dict[str, float | None]:
    """
    Return the memory that processes of no server have on each GPU.

    A process may be that of a server whose processes are not known: of one that runs here on any GPU, of one that may
    run here by another address on those that its configuration names.
    """
    hidden = [user for user in users if user.pids is None]
    if any(user.is_here for user in hidden):
        return {}
    hiding = frozenset[str]().union(*(used[user.name] for user in hidden))
    pids = frozenset[int]().union(*(user.pids or () for user in users))
    return {
        gpu.gpu: _sum([process.memory for process in gpu.processes if process.pid not in pids])
        for gpu in gpus
        if gpu.gpu not in hiding and gpu.processes is not None
    }


def _memory(user: GpuUser, reading: GpuReading | None) -> float | None:
    if reading is None or reading.processes is None or user.pids is None:
        return None
    return _sum([process.memory for process in reading.processes if process.pid in user.pids])


def _reason(user: GpuUser, gpus: Sequence[ServerGpu], report: GpuReport | None, *, was_read: bool) -> GpuReason | None:
    """
    Return why a server has no GPU that can be read, or ``ok``; `None` if it has nothing to do with this driver.

    Many machines have no such driver. It is missed where the configuration needs it, or `was_read` tells that it was
    there and the server's GPUs are known.
    """
    if report is None:
        return None
    if any(gpu.reading is not None for gpu in gpus):
        return "ok"
    if not user.is_here and not gpus_need_driver(user.gpus):
        return None
    if report.reason in {"no_driver", "no_library"}:
        is_missed = gpus_need_driver(user.gpus) or (was_read and bool(gpus))
        return "access_lost" if is_missed else report.reason
    if report.reason not in {"ok", "no_gpus"}:
        return report.reason
    return "no_gpus" if gpus or user.gpus else "unassigned"


def gpus_need_driver(gpus: Sequence[str]) -> bool:
    """Whether any of a server's configured GPUs is named so that only the driver knows which it is."""
    return any(not gpu.startswith(UUIDS) for gpu in gpus)


def _uuid_of(name: str, gpus: Sequence[GpuReading]) -> str | None:
    """Return the GPU with a number or a PCI address; an instance of a divided GPU has neither of its own."""
    whole = [gpu for gpu in gpus if not is_instance(gpu.gpu)]
    return next((gpu.gpu for gpu in whole if name in {str(gpu.number), gpu.pci_bus_id}), None)


def _divided(gpus: Sequence[GpuReading]) -> dict[str, str]:
    whole = {gpu.number: gpu.gpu for gpu in gpus if not is_instance(gpu.gpu)}
    return {gpu.gpu: whole[gpu.number] for gpu in gpus if is_instance(gpu.gpu) and gpu.number in whole}


def _without(gpu: GpuReading, gone: Collection[int]) -> GpuReading:
    if gpu.processes is None or not gone:
        return gpu
    return gpu._replace(processes=tuple(process for process in gpu.processes if process.pid not in gone))


def _gpus_of_processes(gpus: Sequence[GpuReading]) -> Mapping[int, Collection[str]]:
    found: dict[int, list[str]] = {}
    for gpu in gpus:
        for process in gpu.processes or ():
            found.setdefault(process.pid, []).append(gpu.gpu)
    return found


def _sum(memories: Sequence[float | None]) -> float | None:
    """Return the sum of what is known, `None` if anything is not."""
    known = [memory for memory in memories if memory is not None]
    return sum(known) if len(known) == len(memories) else None


MAX_INTERVALS = 3.0
"""For how many intervals a reading is current."""

_THROTTLED = "gpu_throttled_seconds_total"


class GpuSource:
    """
    The GPUs of one server by what the driver said last, for as long as that is current.

    It also knows how much of the time since the reading before their clocks were lowered.

    Args:
        events: Takes in the GPUs that are lost or come back.
    """

    def __init__(self, events: EventHistory) -> None:
        self._events = events
        self._use: GpuUse | None = None
        self._expires_at = 0.0
        self._states: dict[str, tuple[GpuState, str]] = {}
        """The last state of each GPU, and where it is."""
        self.read_at: float | None = None
        """When any of them was read last."""

    def apply(self, use: GpuUse, interval: float) -> None:
        """Take in what a reading says; the next one is due after the interval, in seconds."""
        self._use, self._expires_at = _with_throttling(use, self._use), use.at + MAX_INTERVALS * interval
        if use.reason == "ok":
            self.read_at = use.at
        if use.reason in {"ok", "no_gpus"}:
            self._note_states(use)

    def reason(self, now: float) -> GpuReason | None:
        """Return ``ok`` or why they are not read; `None` without such a source."""
        if self._use is None:
            return None
        return "call_hangs" if self._is_stale(now) else self._use.reason

    def gpus(self, now: float) -> tuple[ServerGpu, ...]:
        """Return the GPUs with what is current."""
        if self._use is None:
            return ()
        if not self._is_stale(now):
            return self._use.gpus
        return tuple(ServerGpu(each.gpu, each.how, each.is_shared, None, None) for each in self._use.gpus)

    def _note_states(self, use: GpuUse) -> None:
        """Note the GPUs whose state has changed; one that the driver does not show any more is lost."""
        before, self._states = self._states, {}
        for each in use.gpus:
            was = before.get(each.gpu)
            if each.reading is not None:
                state, place = each.reading.state, each.reading.pci_bus_id
            elif was is not None:
                state, place = "lost", was[1]
            else:
                continue
            self._states[each.gpu] = state, place
            if was is not None and was[0] != state:
                self._events.add(ServerEvent(use.at, "gpu", state, gpu=place))

    def _is_stale(self, now: float) -> bool:
        return self._use is not None and self._use.reason == "ok" and now > self._expires_at


def _with_throttling(use: GpuUse, before: GpuUse | None) -> GpuUse:
    """Return what a reading says together with how much of the time since the one before clocks were lowered."""
    if before is None:
        return use
    if use.at <= before.at:  # The same reading again.
        known = {each.gpu: each.throttled for each in before.gpus}
        return use._replace(gpus=tuple(each._replace(throttled=known.get(each.gpu)) for each in use.gpus))
    readings = {each.gpu: each.reading for each in before.gpus}
    seconds = use.at - before.at
    gpus = (each._replace(throttled=_throttling(each.reading, readings.get(each.gpu), seconds)) for each in use.gpus)
    return use._replace(gpus=tuple(gpus))


def _throttling(now: GpuReading | None, before: GpuReading | None, seconds: float) -> Mapping[str, float] | None:
    """Return each reason's part of the time; nothing if no counter is known twice, or one has begun again."""
    if now is None or before is None:
        return None
    both = [key for key in now.values if key[0] == _THROTTLED and key in before.values]
    grown = {reason: now.values[name, reason] - before.values[name, reason] for name, reason in both}
    if not grown or min(grown.values()) < 0:
        return None
    return {reason: min(more / seconds, 1.0) for reason, more in grown.items()}
