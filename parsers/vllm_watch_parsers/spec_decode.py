# SPDX-License-Identifier: Apache-2.0
"""The periodic lines on speculative decoding (MTP, EAGLE, n-gram …) of V0, V1 and the Rust front end."""

from __future__ import annotations

import re

from math import isnan

from vllm_watch_parsers.events import Event, Notice, SpecDecoding
from vllm_watch_parsers.numbers import (
    MAX_DRAFT_TOKENS,
    MAX_TOKENS,
    MAX_TOKENS_PER_SECOND,
    number,
)


V1_START = "SpecDecoding metrics: "
V0_START = "Speculative metrics: "

_POSITIONS = re.compile(r"Per-position acceptance rate: ((?:(?:\d+(?:\.\d+)?|nan)(?:, |$)){1,256})")
_FIELD = re.compile(r"([A-Z][A-Za-z_ -]{0,60}): (-?[0-9]+(?:\.[0-9]+)?|nan)(%| tokens/s| tokens)?(?:, |\.?$)")

# What a field is, by its name: the event's field and the most it can be.
_V1_FIELDS: dict[str, tuple[str, float]] = {
    "Mean acceptance length": ("mean_acceptance_length", MAX_DRAFT_TOKENS + 1),
    "Accepted throughput": ("accepted_tokens_per_second", MAX_TOKENS_PER_SECOND),
    "Drafted throughput": ("drafted_tokens_per_second", MAX_TOKENS_PER_SECOND),
    "Accepted": ("accepted_tokens", MAX_TOKENS),
    "Drafted": ("drafted_tokens", MAX_TOKENS),
    "Draft acceptance rate": ("acceptance_ratio", 1),
    "Avg Draft acceptance rate": ("acceptance_ratio", 1),
}
_V0_FIELDS: dict[str, tuple[str, float]] = {
    "Draft acceptance rate": ("acceptance_ratio", 1),
    "System efficiency": ("system_efficiency", 1),
    "Number of speculative tokens": ("num_speculative_tokens", MAX_TOKENS),
    "Number of accepted tokens": ("accepted_tokens_cumulative", MAX_TOKENS),
    "Number of draft tokens": ("drafted_tokens_cumulative", MAX_TOKENS),
    "Number of draft tokens tokens": ("drafted_tokens_cumulative", MAX_TOKENS),
    "Number of emitted tokens": ("emitted_tokens_cumulative", MAX_TOKENS),
    "Number of emitted tokens tokens": ("emitted_tokens_cumulative", MAX_TOKENS),
}


def parse_spec_decoding(message: str) -> tuple[Event, ...]:
    """
    Parse the message of a record printed by `metrics.py` or `log_stats.rs`.

    Returns:
        The event without its engine (the line names none: it belongs to the statistics
        line before it), a `Notice` for a line out of range or not understood, or nothing.
    """
    if message.startswith(V1_START):
        return _parse(message[len(V1_START) :], _V1_FIELDS)
    if message.startswith(V0_START):
        return _parse(message[len(V0_START) :], _V0_FIELDS)
    return ()


def _parse(body: str, names: dict[str, tuple[str, float]]) -> tuple[Event, ...]:
    values: dict[str, float | int | None] = {}
    unknown = []
    positions = None
    found = _POSITIONS.search(body)
    if found:
        body = body[: found.start()] + body[found.end() :]
        positions = tuple(number(text) for text in found[1].split(", ") if text)
    for name, text, unit in _FIELD.findall(body):
        if name not in names:
            unknown.append(name)
            continue
        field, most = names[name]
        value = float(text)
        if unit == "%":
            value = round(value / 100, 6)
        if not 0 <= value <= most and not isnan(value):
            return (Notice("value_refused", field), Notice("stats_unparsed"))
        values[field] = None if isnan(value) else int(value) if most == MAX_TOKENS else value
    if "acceptance_ratio" not in values:
        return (Notice("stats_unparsed"),)
    if positions is not None and any(rate is not None and rate > 1 for rate in positions):
        return (Notice("value_refused", "position_acceptance_ratio"), Notice("stats_unparsed"))
    event = SpecDecoding(
        position_acceptance_ratio=positions,
        unknown_fields=tuple(unknown),
        **values,  # type: ignore[arg-type]  # The table gives each field its type.
    )
    return (_with_bonus_token(event),)


def _with_bonus_token(event: SpecDecoding) -> SpecDecoding:
    """
    Count the bonus token in the mean acceptance length of 0.8.5, which alone leaves it out.

    The same text means both. The rates by position tell: they add up to the mean number
    of accepted draft tokens, which is one less than the length with the bonus token.
    """
    length, rates = event.mean_acceptance_length, event.position_acceptance_ratio
    if length is None or not rates:
        return event
    drafts = sum(rate for rate in rates if rate is not None)
    if abs(length - drafts) < abs(length - 1 - drafts):
        return event._replace(mean_acceptance_length=round(length + 1, 2))
    return event
