# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint keeps of a server's present life: facts, flags, KV caches, GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple

import msgspec

from vllm_watch.daemon.catalog.codes import MAX_ENGINES
from vllm_watch.daemon.state.facts import Count, Facts, Text
from vllm_watch_parsers.exposition import EngineKey
from vllm_watch_parsers.flags import CommandFacts


Place = Literal["engine", "lines", "metrics", "arguments", "command line"]
"""Where flags stand: in three kinds of lines of the log, in /metrics, on the command line."""


class KeptFlags(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The flags that one source has of a start, by place, and the names beside them, as a checkpoint keeps them."""

    names: Annotated[dict[Text, Text], msgspec.Meta(max_length=8)] = {}
    places: dict[Place, Annotated[dict[Text, Text], msgspec.Meta(max_length=128)]] = {}


class ServerProcess(NamedTuple):
    """A server's process: its number, and when it was started, in clock ticks since the boot."""

    pid: int
    started: int


class RunningServer(NamedTuple):
    """A server's process on this machine, what its command line says, and the file that it writes its log into now."""

    process: ServerProcess
    command: CommandFacts
    log: str | None = None


MAX_CACHES = 8
"""Of how many earlier starts, each with other flags, the sizes of the KV cache are kept."""


class StartedCaches(NamedTuple):
    """The sizes of the KV caches at one start: the digest of its flags, its model, and tokens by engine."""

    digest: Text
    model_name: Annotated[str, msgspec.Meta(max_length=1024)]
    tokens: Annotated[dict[Text, Count], msgspec.Meta(max_length=MAX_ENGINES)]


class KeptFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """
    What is known of a server's present life, as a checkpoint keeps it, and what identifies that life.

    `log` names the log that it was read in, `process_start` is the start as /metrics reports it, in seconds since the
    epoch. `caches` are those of this life, `former_caches` of earlier ones.
    """

    server: str
    log: str | None = None
    process_start: Annotated[float, msgspec.Meta(ge=0, le=2**63)] | None = None
    facts: Facts | None = None
    flags: KeptFlags = KeptFlags()
    caches: StartedCaches | None = None
    former_caches: Annotated[tuple[StartedCaches, ...], msgspec.Meta(max_length=MAX_CACHES)] = ()


class KnownUse(NamedTuple):
    """
    The GPUs that a server's processes were on.

    Args:
        server: Its name.
        start: Tells in which start of it, as in `GpuUser`.
        gpus: Their UUIDs.
    """

    server: str
    start: tuple[int, int]
    gpus: frozenset[str]


class FormerCaches:
    """Takes in the sizes of the present start, and where the next one begins."""

    def __init__(self) -> None:
        self._present: StartedCaches | None = None
        self._former: tuple[StartedCaches, ...] = ()
        """Those of earlier starts, the last one with each digest and model; the latest is the last."""

    def note(self, digest: str, sizes: Mapping[EngineKey, float]) -> None:
        """Take in the flags' digest and each engine's size in tokens at the present start."""
        model_name = next(iter(sizes)).model_name
        tokens = {key.engine: round(size) for key, size in sizes.items()}
        self._present = StartedCaches(digest, model_name, tokens)

    def start(self) -> None:
        """Take in that the server starts again."""
        started, self._present = self._present, None
        if started is not None:
            others = (each for each in self._former if each[:2] != started[:2])
            self._former = (*others, started)[-MAX_CACHES:]

    def tokens(self, digest: str | None, key: EngineKey) -> int | None:
        """Return an engine's size at the last start before the present one with this digest, if there was one."""
        started = (each for each in self._former if each[:2] == (digest, key.model_name))
        return next((each.tokens.get(key.engine) for each in started), None)

    @property
    def kept(self) -> tuple[StartedCaches | None, tuple[StartedCaches, ...]]:
        """Those of the present start, and of the earlier ones, for a checkpoint."""
        return self._present, self._former

    def restore(self, present: StartedCaches | None, former: tuple[StartedCaches, ...]) -> None:
        """Take back what an earlier run of the daemon knew; the present start may have ended meanwhile."""
        self._present, self._former = present, former
