# SPDX-License-Identifier: Apache-2.0
"""What `advise` answers. Times are seconds since the epoch, ratios from 0 to 1; what is not known is absent."""

from __future__ import annotations

from typing import Literal

from vllm_watch.analysis.loadtest.load_test import Struct
from vllm_watch.daemon.catalog.language import N_


Cause = Literal["kv_cache_full", "batch_full", "prompts_in_steps", "drafts", "eager_steps"]
"""What makes a server slower than it has to be. There is one piece of advice for each at most."""

Statistic = Literal["mean", "highest", "increase", "share_of_time", "share", "p50", "p99", "difference"]
Direction = Literal["rises", "falls"]


GENERATION = N_("the engine's generation")
DEVICE = N_("the device")
OBJECTIVE = N_("the objective")
"""What may not be known besides flags."""


class Evidence(Struct, frozen=True, kw_only=True):
    """
    One number that advice rests on.

    `series` is the series that it was read from, by its whole name, or the metric of a comparison. `value` is that of
    `statistic` between `start` and `end`, of which `seconds` count; `limit` is what it was held against. `text` says
    the same as a clause.
    """

    series: str
    statistic: Statistic
    value: float
    text: str
    limit: float | None = None
    start: float | None = None
    end: float | None = None
    seconds: float | None = None


class Expectation(Struct, frozen=True, kw_only=True):
    """What a change moves, and where to: never by how much."""

    series: str
    direction: Direction


class Advice(Struct, frozen=True, kw_only=True):
    """
    One flag to change.

    `flag` is vLLM's name without the dashes, `now` and `proposed` are its values as text. `check` has the commands that
    show what the change does; words in capitals in them are to be filled in. `caveats` are sentences on how thin the
    evidence is.
    """

    flag: str
    now: str
    proposed: str
    says: str
    expected: str
    risk: str
    evidence: tuple[Evidence, ...]
    check: tuple[str, ...]
    rule: str
    cause: Cause
    expects: tuple[Expectation, ...]
    server: str
    caveats: tuple[str, ...] = ()


class Silence(Struct, frozen=True, kw_only=True):
    """Why a rule says nothing about a server; `unknown` names what it cannot judge without."""

    rule: str
    flag: str
    reason: str
    server: str
    unknown: tuple[str, ...] = ()


class Note(Struct, frozen=True, kw_only=True):
    """What is worth knowing, and no flag to change."""

    text: str
    server: str


class Observed(Struct, frozen=True, kw_only=True):
    """A server with one configuration: where it was observed, and for how long it had work."""

    name: str
    source: tuple[str, ...]
    seconds: float
    model: str | None = None
    version: str | None = None
    start: float | None = None
    end: float | None = None
    warnings: tuple[str, ...] = ()
    """What its sources cannot show, in sentences."""


class Advised(Struct, frozen=True, kw_only=True):
    """All that is advised, the most important first, and of each rule without advice why it has none."""

    advice: tuple[Advice, ...]
    notes: tuple[Note, ...]
    silent: tuple[Silence, ...]
    servers: tuple[Observed, ...]
