# SPDX-License-Identifier: Apache-2.0
"""
An incident as it is written down, one short file each: what was reported where, what happens, what must be said of it.

README.md describes the format. A file with a mistake ends with a sentence that names the file and the key.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import yaml

from tests.support.yaml_files import load_yaml


FOLDER = Path(__file__).parent
KINDS = ("reported", "healthy")
"""The folders: incidents that somebody reported, and healthy servers that look like one of them."""

Seconds = Annotated[float, msgspec.Meta(gt=0)]


class Swing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value that goes up and down between two, once in so many seconds."""

    swing: tuple[float, float]
    seconds: Seconds


Value = float | tuple[float, float] | Swing
"""A number, two between which a value moves evenly through its phase, or a swing."""


class Gpu(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    What the driver and the kernel say of the server's GPUs.

    Args:
        busy: The share of time in which kernels run.
        watts: The power.
        state: "missing" is what the driver shows no more.
        count: How many there are; what else is said is of the first, and the others are as they are when all is well.
        values: Its other values, by their names and labels, such as ``gpu_throttled_seconds_total hw_thermal``; what
            ends with ``_total`` grows by so much each second.
        others: GiB that processes of no watched server have on it.
        xid: The code of an error that the kernel reports when the phase begins.
    """

    busy: float = 0.9
    watts: float = 500.0
    state: Literal["ok", "lost", "missing"] = "ok"
    count: int = 1
    values: Mapping[str, Value] = {}
    others: float = 0.0
    xid: str | None = None


class Phase(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """
    A stretch of time.

    Args:
        seconds: How long it is.
        does: What the engine does: "usual" is the healthy traffic again, "nothing" counts nothing more, "idle" has no
            request either.
        values: What is different, by the names of `traffic.HEALTHY`; all else stays as it was before.
        second: The same of the second engine or server, where it differs from the first.
        lines: Samples of /metrics that no value stands for, by their names and labels; counters and histograms grow by
            so much each second. They stay, too.
        without: Families that its /metrics does not have.
        log: Lines that are printed at its start.
        logged: What the log's statistics say, where that is not what /metrics says.
        log_files_lost: Log files that were deleted before they were read to their end.
        starts: Whether the server's process begins there.
        kv_blocks: The size of its KV cache from there on.
        scrape: What becomes of each scrape; "unwatched" is that the daemon knows of no such server any more, and "dead"
            that the daemon is gone, with its machine.
        probe: Seconds until a probe's token, or what becomes of it; it is tried once a minute. It stays, too.
        gpu: What the driver says of its GPU. It stays, too.
    """

    seconds: Seconds
    does: Literal["usual", "nothing", "idle"] | None = None
    values: Mapping[str, Value] = {}
    second: Mapping[str, Value] = {}
    lines: Mapping[str, Value] = {}
    without: frozenset[str] = frozenset()
    log: tuple[str, ...] = ()
    logged: Mapping[str, float] = {}
    log_files_lost: int = 0
    starts: bool = False
    kv_blocks: int | None = None
    scrape: Literal["ok", "refused", "timeout", "none", "unwatched", "dead"] = "ok"
    probe: float | Literal["timeout", "none"] | None = None
    gpu: Gpu | None = None


class Said(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An alert that must fire: at most `within` seconds after the incident's start, and gone by `until`."""

    alert: str
    within: Seconds
    until: Seconds | None = None
    severity: Literal["critical", "warning", "info"] | None = None


class Story(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """
    One incident.

    Args:
        title: What happens, in a sentence.
        reports: Where it was reported: repository and number.
        release: The release whose /metrics it is played with.
        then: What happens after the healthy traffic, phase after phase.
        before: Seconds of healthy traffic; `usual` are its values where they differ from `traffic.HEALTHY`.
        flags: The server's flags, as on its command line.
        slo: Whether it has an objective.
        every: Seconds between two scrapes.
        stalled: The state "stalled" must be shown within so many seconds; without it never.
        down: The same of the state "down".
        says: The alerts that must fire.
        may: What else may fire: a warning that is true of it.
        unseen: Why it cannot be found, if so.
        prints_statistics: Whether its log has the lines of statistics.
        probe: What becomes of the probe before, and of the GPU.
        second: Whether there is a second engine in the same server, or a second server of the same model.
    """

    title: str
    reports: tuple[str, ...]
    release: str
    then: tuple[Phase, ...]
    before: Seconds = 120
    usual: Mapping[str, Value] = {}
    flags: Mapping[str, str] = {}
    slo: bool = False
    every: Seconds = 15
    stalled: float | None = None
    down: float | None = None
    says: tuple[Said, ...] = ()
    may: frozenset[str] = frozenset()
    unseen: str | None = None
    prints_statistics: bool = False
    probe: float | None = None
    gpu: Gpu | None = None
    second: Literal["engine", "server"] | None = None

    @property
    def of_second(self) -> Story:
        """The same story of the second engine or server."""
        then = [msgspec.structs.replace(phase, values={**phase.values, **phase.second}) for phase in self.then]
        return msgspec.structs.replace(self, then=tuple(then))

    @property
    def seconds(self) -> float:
        """How long it lasts after its incident began."""
        return sum(phase.seconds for phase in self.then)


@cache
def stories(kind: str) -> Mapping[str, Story]:
    """Return the stories of a folder by their names."""
    return {path.stem: read(path) for path in sorted((FOLDER / kind).glob("*.yml"))}


def read(path: Path) -> Story:
    """Return the story of a file."""
    try:
        return msgspec.convert(load_yaml(path.read_text(encoding="utf-8")), Story, strict=True)
    except (msgspec.ValidationError, yaml.YAMLError) as error:
        raise ValueError(f"{path.name}: {error}") from error
