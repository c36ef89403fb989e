# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint keeps of a server's present life: facts, flags, process, command line and GPUs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Literal, NamedTuple

import msgspec

from vllm_watch.daemon.catalog.codes import MAX_ENGINES
from vllm_watch.daemon.state.facts import Count, Facts, Text
from vllm_watch_parsers.flags import CommandFacts, given_flags
from vllm_watch_parsers.startup import known_name


Place = Literal["engine", "lines", "metrics", "arguments", "command line"]
"""Where flags stand: in three kinds of lines of the log, in /metrics, on the command line."""

_Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class KeptFlags(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The flags that one source has of a start, by place, and the names beside them, as a checkpoint keeps them."""

    names: Annotated[dict[Text, Text], msgspec.Meta(max_length=8)] = {}
    places: dict[Place, Annotated[dict[Text, Text], msgspec.Meta(max_length=128)]] = {}


class CommandLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """`CommandFacts`, with its flags by name; a file may hold anything in the texts."""

    model_name: str = ""
    has_several_api_servers: bool = False
    log_stats_disabled: bool = False
    flags: Mapping[str, str] | None = None
    model: str | None = None

    @classmethod
    def of(cls, facts: CommandFacts, clean: Callable[[str], str] = str) -> CommandLine:
        """Return what is kept of a command line; `clean` removes what is private from its texts."""
        flags = None if facts.flags is None else {name: clean(value) for name, value in facts.flags}
        model = None if facts.model is None else clean(facts.model)
        return cls(**{**facts._asdict(), "model_name": clean(facts.model_name), "flags": flags, "model": model})

    @property
    def facts(self) -> CommandFacts:
        """The facts, as far as they are flags of the closed list and spelt as they may become labels."""
        flags = None if self.flags is None else given_flags(self.flags.items())
        names = {"model_name": known_name(self.model_name) or "", "model": known_name(self.model)}
        return CommandFacts(**{**msgspec.structs.asdict(self), **names, "flags": flags})


class ServerProcess(NamedTuple):
    """A server's process: its number, and when it was started, in clock ticks since the boot."""

    pid: _Number
    started: _Number


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
    epoch, and `process` the process on this machine. `caches` are those of this life, `former_caches` of earlier ones.
    """

    server: str
    log: str | None = None
    process_start: Annotated[float, msgspec.Meta(ge=0, le=2**63)] | None = None
    process: ServerProcess | None = None
    facts: Facts | None = None
    flags: KeptFlags = KeptFlags()
    command: CommandLine = CommandLine()
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
