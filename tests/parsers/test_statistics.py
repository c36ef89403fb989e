# SPDX-License-Identifier: Apache-2.0
"""Statistics lines that no release prints: damaged, forged, or of a later release."""

from __future__ import annotations

import pytest

from hypothesis import given
from hypothesis import strategies as st
from tests.parsers.lines import SPEC, SPEC_MESSAGE, STATS, STATS_MESSAGE, events, old_record, record

from vllm_watch_parsers import engine_stats
from vllm_watch_parsers.events import Notice
from vllm_watch_parsers.line import NOTHING, parse_line
from vllm_watch_parsers.prefix import STATS_SITES


DIFFUSION = (
    "DiffusionDecoding metrics: Committed token throughput: 84.00 tokens/s, Mean denoising steps per canvas: 8.00, "
    "Mean tokens committed per denoising step: 4.00, Committed: 840 tokens, Denoising steps: 210, "
    "Canvas positions evaluated: 6720"
)


@pytest.mark.parametrize(("message", "event"), [(STATS_MESSAGE, STATS), (SPEC_MESSAGE, SPEC)])
def test_statistics_count_from_the_files_that_print_them(message, event):
    """A perfect statistics line from any other file is someone's text."""
    for site in STATS_SITES:
        assert events(record(message, site)) == events(old_record(message, site)) == (event,)
    for site in ("logger.py", "request_logger.py", "async_llm.py", "core.py", "eagle.py", "xmetrics.py", "loggers.pyc"):
        assert events(record(message, site)) == ()
    for site in ("a.rs", "json", "uvicorn"):
        assert events(record(message, site)) == ()


@pytest.mark.parametrize(
    ("extra", "unknown"),
    [
        ("Sleeping: 4 reqs", "Sleeping"),
        ("New ratio: 4.5%", "New ratio"),
        ("GPU+host bytes: 5", "GPU+host bytes"),
        ("Draft model: a/b", "Draft model"),
        ("¿?: 9", "unnamed"),
        ("State: {'a': 1}", "State"),
    ],
)
def test_a_field_of_a_later_release_is_named_and_does_no_harm(extra, unknown):
    """A field that no release known here prints is reported by its name, wherever it is; the others are read."""
    for message in (f"{STATS_MESSAGE}, {extra}", STATS_MESSAGE.replace(", GPU", f", {extra}, GPU")):
        assert events(record(message)) == (STATS._replace(unknown_fields=(unknown,)),)
    assert events(record(f"{SPEC_MESSAGE}, {extra}")) == (SPEC._replace(unknown_fields=(unknown,)),)


@pytest.mark.parametrize(
    "message",
    [
        "Avg prompt throughput: 12.3 tokens/s",
        "Engine 000: Avg prompt throughput: 12.3 tokens/s, Avg generation throughput: 45.6 tokens/s, Running: 7 reqs",
        f"{STATS_MESSAGE}, Running: 7 reqs",
        f"{STATS_MESSAGE}, Running: 9 requests too many",
        f"{STATS_MESSAGE}, Waiting: 9",
        STATS_MESSAGE.replace("7 reqs", "7 requests"),
        STATS_MESSAGE.replace("45.6 tokens/s", "4,5.6 tokens/s"),
        STATS_MESSAGE.replace("55.5%", "inf%"),
        STATS_MESSAGE.replace("55.5%", "55.5"),
        STATS_MESSAGE.replace("7 reqs", "\uff17 reqs"),
        STATS_MESSAGE.replace("45.6", "\u0664\u0665.\u0666"),
        STATS_MESSAGE.replace("9.1%", "\uff19.\uff11%"),
        STATS_MESSAGE.replace("7 reqs", "1_0 reqs"),
        STATS_MESSAGE.replace("7 reqs", "\u00a07 reqs"),
        STATS_MESSAGE[: STATS_MESSAGE.index("Waiting")],
        "SpecDecoding metrics: ",
        "SpecDecoding metrics: later",
        "Speculative metrics: Accepted: 5",
        SPEC_MESSAGE[:60],
        SPEC_MESSAGE.replace("rate: 0.", "rate: \uff10.", 1),
        SPEC_MESSAGE.replace("Accepted: ", "Accepted: \uff11", 1),
        DIFFUSION.replace("840", "many"),
        "DiffusionDecoding metrics: Committed: 5 tokens",
    ],
)
def test_what_begins_as_statistics_and_is_not_understood_is_reported(message):
    """A torn line, one with a field twice, or with digits that vLLM does not print, is no statistics; it is counted."""
    assert events(record(message)) == (Notice("stats_unparsed"),)


@pytest.mark.parametrize(
    ("printed", "positions", "length"),
    [
        ("0.00", "0.000, 0.000", 1.0),
        ("1.00", "0.000, 0.000", 1.0),
        ("2.00", "1.000, 1.000", 3.0),
        ("3.00", "1.000, 1.000", 3.0),
        ("1.40", "0.900, 0.500", 2.4),
        ("2.40", "0.900, 0.500", 2.4),
        ("1.41", "0.905, 0.500", 2.41),
    ],
)
def test_the_bonus_token_is_counted_always(printed, positions, length):
    """The rates by position tell whether the printed length has the bonus token; the event's always has."""
    (event,) = engine_stats.parse_spec_decoding(
        f"SpecDecoding metrics: Draft acceptance rate: 50.0%, Mean acceptance length: {printed}, "
        f"Accepted: 1 tokens, Drafted: 2 tokens, Per-position acceptance rate: {positions}"
    )

    assert event.mean_acceptance_length == length


REQUESTS = [
    record("Received request cmpl-1: prompt: 'x'", "request_logger.py", process="(APIServer pid=7) "),
    record("Received request cmpl-1: prompt: 'x'", "logger.py"),
    record("Added request cmpl-1.", "v1/engine/async_llm.py"),
    b"INFO 11-21 02:35:10 logger.py:36] Received request cmpl-1: prompt: 'Engine 000: ', params: x",
    b"INFO 11-21 02:35:10 async_llm_engine.py:211] Added request cmpl-1.",
]


@pytest.mark.parametrize("line", REQUESTS)
def test_records_of_requests_are_known_by_their_start(line):
    """They are dropped unread, for they have no event."""
    assert parse_line(line) is NOTHING


@given(st.sampled_from(REQUESTS), st.text(max_size=80))
def test_no_record_of_a_request_has_an_event(start, text):
    """Whatever a client sends in its request."""
    line = start + text.replace("\n", "").replace("\r", "").encode("utf-8", "backslashreplace")
    parsed = parse_line(line)

    assert ((), None, False) == (parsed.events, parsed.record, parsed.is_rejected)
