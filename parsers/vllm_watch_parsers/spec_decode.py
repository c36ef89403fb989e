# SPDX-License-Identifier: Apache-2.0
"""The periodic lines on speculative decoding (MTP, EAGLE, n-gram …) of V0, V1 and the Rust front end."""

from __future__ import annotations

import re

from collections.abc import Mapping
from math import isnan

from vllm_watch_parsers.engine_stats import reported
from vllm_watch_parsers.events import DiffusionDecoding, Event, SpecDecoding
from vllm_watch_parsers.fields import (
    MAX_DRAFT_TOKENS,
    MAX_TOKENS,
    MAX_TOKENS_PER_SECOND,
    USUAL_PERCENT,
    USUAL_RATE,
    Kind,
    MalformedError,
    OutOfRangeError,
    is_plain,
    named_fields,
    read_field,
    unknown_name,
    usual_ratio,
)


V1_START = "SpecDecoding metrics: "
V0_START = "Speculative metrics: "
DIFFUSION_START = "DiffusionDecoding metrics: "
SPEC_STARTS = (V1_START, V0_START, DIFFUSION_START)

_V1_FIELDS: dict[str, Kind] = {
    "Mean acceptance length": Kind("mean_acceptance_length", "", MAX_DRAFT_TOKENS + 1),
    "Accepted throughput": Kind("accepted_tokens_per_second", " tokens/s", MAX_TOKENS_PER_SECOND),
    "Drafted throughput": Kind("drafted_tokens_per_second", " tokens/s", MAX_TOKENS_PER_SECOND),
    "Accepted": Kind("accepted_tokens", " tokens", MAX_TOKENS, whole=True),
    "Drafted": Kind("drafted_tokens", " tokens", MAX_TOKENS, whole=True),
    "Draft acceptance rate": Kind("acceptance_ratio", "%", 1),
    "Avg Draft acceptance rate": Kind("acceptance_ratio", "%", 1),
}
_V0_FIELDS: dict[str, Kind] = {
    "Draft acceptance rate": Kind("acceptance_ratio", "", 1),
    "System efficiency": Kind("system_efficiency", "", 1),
    "Number of speculative tokens": Kind("num_speculative_tokens", "", MAX_DRAFT_TOKENS, whole=True),
    "Number of accepted tokens": Kind("accepted_tokens_cumulative", "", MAX_TOKENS, whole=True),
    "Number of draft tokens": Kind("drafted_tokens_cumulative", "", MAX_TOKENS, whole=True),
    "Number of draft tokens tokens": Kind("drafted_tokens_cumulative", "", MAX_TOKENS, whole=True),
    "Number of emitted tokens": Kind("emitted_tokens_cumulative", "", MAX_TOKENS, whole=True),
    "Number of emitted tokens tokens": Kind("emitted_tokens_cumulative", "", MAX_TOKENS, whole=True),
}
_DIFFUSION_FIELDS: dict[str, Kind] = {
    "Committed token throughput": Kind("committed_tokens_per_second", " tokens/s", MAX_TOKENS_PER_SECOND),
    "Mean tokens committed per denoising step": Kind("tokens_per_denoising_step", "", MAX_TOKENS),
    "Committed": Kind("committed_tokens", " tokens", MAX_TOKENS, whole=True),
    "Denoising steps": Kind("denoising_steps", "", MAX_TOKENS, whole=True),
    "Canvas positions evaluated": Kind("canvas_positions", "", MAX_TOKENS, whole=True),
}
_RATIO_OF_COUNTS = "Mean denoising steps per canvas"
"""Printed as the positions by the tokens, which are there."""
_AMBIGUOUS = "Draft acceptance rate: "
_POSITIONS = "Per-position acceptance rate"

_SHARE = r"(?:0\.\d{3}|1\.000)"
_USUAL = re.compile(
    rf"{V1_START}Mean acceptance length: (\d{{1,2}}\.\d{{1,2}}), Accepted throughput: ({USUAL_RATE}) tokens/s, "
    rf"Drafted throughput: ({USUAL_RATE}) tokens/s, Accepted: (\d{{1,12}}) tokens, Drafted: (\d{{1,12}}) tokens, "
    rf"Per-position acceptance rate: ({_SHARE}(?:, {_SHARE}){{0,63}}), "
    rf"Avg Draft acceptance rate: ({USUAL_PERCENT})%\Z",
    re.ASCII,
)
"""The form of nearly all lines of V1, in which every number is in its range."""

Value = float | int | tuple[float | None, ...] | None


def parse_spec_decoding(message: str) -> tuple[Event, ...]:
    """
    Parse the message of a record printed by `metrics.py` or `log_stats.rs`.

    Returns:
        The event without its engine (the line names none: it belongs to the statistics
        line before it), a `Notice` for a line out of range or not understood, or nothing.
    """
    usual = _USUAL.match(message)
    if usual is not None:
        return (_usual_drafts(usual),)
    if message.startswith(V1_START):
        return reported(lambda: _drafts(message[len(V1_START) :], _V1_FIELDS))
    if message.startswith(V0_START):
        return reported(lambda: _drafts(message[len(V0_START) :], _V0_FIELDS))
    if message.startswith(DIFFUSION_START):
        return reported(lambda: _diffusion(message[len(DIFFUSION_START) :]))
    return ()


def _usual_drafts(found: re.Match[str]) -> SpecDecoding:
    length, accepted_rate, drafted_rate, accepted, drafted, positions, rate = found.groups()
    return SpecDecoding(
        None,
        float(length),
        float(accepted_rate),
        float(drafted_rate),
        int(accepted),
        int(drafted),
        usual_ratio(rate),
        tuple(map(float, positions.split(", "))),
    )


def _drafts(body: str, table: Mapping[str, Kind]) -> SpecDecoding | None:
    """Return what a line says; without an acceptance ratio it is malformed."""
    values, unknown = _fields(body.rstrip("."), table)
    if "acceptance_ratio" not in values:
        return None
    event = SpecDecoding(unknown_fields=unknown, **values)  # type: ignore[arg-type]  # By the tables.
    # Only the form of 0.8.5 to 0.10.1 is ambiguous; later ones start with the length, which has the bonus token.
    return _with_bonus_token(event) if body.startswith(_AMBIGUOUS) else event


def _diffusion(body: str) -> DiffusionDecoding | None:
    """Return what a line of a diffusion language model says; without its counts it is malformed."""
    values, unknown = _fields(body, _DIFFUSION_FIELDS)
    if "committed_tokens" not in values or "denoising_steps" not in values:
        return None
    return DiffusionDecoding(unknown_fields=unknown, **values)  # type: ignore[arg-type]  # By the table.


def _fields(body: str, table: Mapping[str, Kind]) -> tuple[dict[str, Value], tuple[str, ...]]:
    values: dict[str, Value] = {}
    unknown = []
    for name, text in named_fields(body):
        kind = table.get(name)
        if kind is not None:
            values[kind.field] = read_field(kind, text)
        elif name == _POSITIONS and table is not _DIFFUSION_FIELDS:
            values["position_acceptance_ratio"] = _read_positions(text)
        elif name != _RATIO_OF_COUNTS or table is not _DIFFUSION_FIELDS:
            unknown.append(unknown_name(name))
    return values, tuple(unknown)


def _read_positions(text: str) -> tuple[float | None, ...]:
    """Read ``0.863, 0.679, nan``, the rates of the positions in a draft."""
    if not is_plain(text):
        raise MalformedError
    try:
        rates = [float(rate) for rate in text.split(", ")]
    except ValueError:
        raise MalformedError from None
    if len(rates) > MAX_DRAFT_TOKENS or not all(0 <= rate <= 1 or isnan(rate) for rate in rates):
        raise OutOfRangeError("position_acceptance_ratio")
    return tuple([None if isnan(rate) else rate for rate in rates])


def _with_bonus_token(event: SpecDecoding) -> SpecDecoding:
    """
    Count the bonus token in the mean acceptance length of 0.8.5, which alone leaves it out.

    The same text means both. The rates by position decide: they add up to the mean number
    of accepted draft tokens, which is one less than the length with the bonus token.
    """
    length, rates = event.mean_acceptance_length, event.position_acceptance_ratio
    if length is None or not rates:
        return event
    drafts = sum(rate for rate in rates if rate is not None)
    if abs(length - drafts) < abs(length - 1 - drafts):
        return event._replace(mean_acceptance_length=round(length + 1, 2))
    return event
