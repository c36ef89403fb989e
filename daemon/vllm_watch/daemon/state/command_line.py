# SPDX-License-Identifier: Apache-2.0
"""What a server's command line says, as a recording and a checkpoint hold it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from vllm_watch_parsers.flags import CommandFacts, given_flags
from vllm_watch_parsers.startup import known_name


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
