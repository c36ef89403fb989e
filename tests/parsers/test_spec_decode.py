# SPDX-License-Identifier: Apache-2.0
"""Lines on speculative decoding of every era, and the bonus token that one release leaves out."""

from __future__ import annotations

import pytest

from tests.parsers.lines import SPEC, SPEC_MESSAGE, events, json_record, old_record, record

from vllm_watch_parsers.events import DiffusionDecoding, Notice, SpecDecoding
from vllm_watch_parsers.spec_decode import parse_spec_decoding


_V0_START = (
    "Speculative metrics: Draft acceptance rate: 0.868, System efficiency: 0.895, Number of speculative tokens: 4, "
)
_V0 = SpecDecoding(
    acceptance_ratio=0.868,
    system_efficiency=0.895,
    num_speculative_tokens=4,
    accepted_tokens_cumulative=147,
    drafted_tokens_cumulative=169,
    emitted_tokens_cumulative=190,
)

ERAS = {
    "V0, 0.5.0: tokens tokens": (
        _V0_START + "Number of accepted tokens: 147, Number of draft tokens tokens: 169, "
        "Number of emitted tokens tokens: 190.",
        _V0,
    ),
    "V0, 0.5.3 to 0.9.2": (
        _V0_START + "Number of accepted tokens: 147, Number of draft tokens: 169, Number of emitted tokens: 190.",
        _V0,
    ),
    "V0 before the first draft": (
        (
            "Speculative metrics: Draft acceptance rate: nan, System efficiency: nan, Number of speculative tokens: 4, "
            "Number of accepted tokens: 0, Number of draft tokens: 0, Number of emitted tokens: 0."
        ),
        SpecDecoding(
            num_speculative_tokens=4,
            accepted_tokens_cumulative=0,
            drafted_tokens_cumulative=0,
            emitted_tokens_cumulative=0,
        ),
    ),
    "V1, 0.8.3 and 0.8.4": (
        "SpecDecoding metrics: Draft acceptance rate: 56.3%, Accepted: 120 tokens, Drafted: 213 tokens",
        SpecDecoding(acceptance_ratio=0.563, accepted_tokens=120, drafted_tokens=213),
    ),
    "V1, 0.8.5: without the bonus token": (
        (
            "SpecDecoding metrics: Draft acceptance rate: 56.3%, Mean acceptance length: 2.82, Accepted: 12022 tokens, "
            "Drafted: 21345 tokens, Per-position acceptance rate: 0.863, 0.679, 0.612, 0.429, 0.232"
        ),
        SpecDecoding(
            acceptance_ratio=0.563,
            mean_acceptance_length=3.82,
            accepted_tokens=12022,
            drafted_tokens=21345,
            position_acceptance_ratio=(0.863, 0.679, 0.612, 0.429, 0.232),
        ),
    ),
    "V1, 0.9.0 to 0.10.1: the same text with the bonus token": (
        (
            "SpecDecoding metrics: Draft acceptance rate: 56.3%, Mean acceptance length: 3.82, Accepted: 12022 tokens, "
            "Drafted: 21345 tokens, Per-position acceptance rate: 0.863, 0.679, 0.612, 0.429, 0.232"
        ),
        SpecDecoding(
            acceptance_ratio=0.563,
            mean_acceptance_length=3.82,
            accepted_tokens=12022,
            drafted_tokens=21345,
            position_acceptance_ratio=(0.863, 0.679, 0.612, 0.429, 0.232),
        ),
    ),
    "V1, 0.10.2 and later, and Rust": (SPEC_MESSAGE, SPEC),
    "V1 after an interval without drafts": (
        (
            "SpecDecoding metrics: Mean acceptance length: nan, Accepted throughput: 0.00 tokens/s, "
            "Drafted throughput: 0.00 tokens/s, Accepted: 0 tokens, Drafted: 0 tokens, "
            "Per-position acceptance rate: nan, nan, Avg Draft acceptance rate: nan%"
        ),
        SpecDecoding(
            accepted_tokens_per_second=0.0,
            drafted_tokens_per_second=0.0,
            accepted_tokens=0,
            drafted_tokens=0,
            position_acceptance_ratio=(None, None),
        ),
    ),
    "Rust without positions": (
        (
            "SpecDecoding metrics: Mean acceptance length: 2.50, Accepted throughput: 30.00 tokens/s, "
            "Drafted throughput: 40.00 tokens/s, Accepted: 300 tokens, Drafted: 400 tokens, "
            "Avg Draft acceptance rate: 75.0%"
        ),
        SPEC._replace(position_acceptance_ratio=None),
    ),
    "one position": (
        (
            "SpecDecoding metrics: Mean acceptance length: 1.90, Accepted throughput: 30.00 tokens/s, "
            "Drafted throughput: 40.00 tokens/s, Accepted: 90 tokens, Drafted: 100 tokens, "
            "Per-position acceptance rate: 0.900, Avg Draft acceptance rate: 90.0%"
        ),
        SPEC._replace(
            mean_acceptance_length=1.9,
            accepted_tokens=90,
            drafted_tokens=100,
            acceptance_ratio=0.9,
            position_acceptance_ratio=(0.9,),
        ),
    ),
}


@pytest.mark.parametrize(("message", "event"), ERAS.values(), ids=ERAS)
def test_speculative_decoding_of_every_era(message, event):
    """Each era's line gives the same fields; V0's totals are kept apart from the counts of an interval."""
    assert parse_spec_decoding(message) == (event,)


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
    (event,) = parse_spec_decoding(
        f"SpecDecoding metrics: Draft acceptance rate: 50.0%, Mean acceptance length: {printed}, "
        f"Accepted: 1 tokens, Drafted: 2 tokens, Per-position acceptance rate: {positions}"
    )

    assert event.mean_acceptance_length == length


@pytest.mark.parametrize(
    "line",
    [
        record(SPEC_MESSAGE, "metrics.py", process="(APIServer pid=7) "),
        record(SPEC_MESSAGE, "v1/spec_decode/metrics.py"),
        record(SPEC_MESSAGE, "log_stats.rs", process="(RustFrontend pid=7) "),
        old_record(SPEC_MESSAGE, "metrics.py"),
        json_record(SPEC_MESSAGE, name="vllm.v1.spec_decode.metrics"),
        json_record(SPEC_MESSAGE, name=None),
    ],
)
def test_the_line_counts_from_the_files_that_print_it(line):
    """The line has no engine of its own, whatever process prints it."""
    assert events(line) == (SPEC,)


@pytest.mark.parametrize("site", ["logger.py", "async_llm.py", "eagle.py"])
def test_the_line_counts_from_no_other_file(site):
    """Text that resembles it is someone's."""
    assert events(record(SPEC_MESSAGE, site)) == ()


@pytest.mark.parametrize(
    ("old", "new", "quantity"),
    [
        ("75.0%", "100.1%", "acceptance_ratio"),
        ("75.0%", "-1.0%", "acceptance_ratio"),
        ("2.50", "258.00", "mean_acceptance_length"),
        ("30.00", "100000001.00", "accepted_tokens_per_second"),
        ("300 tokens", "-300 tokens", "accepted_tokens"),
        ("400 tokens", "1000000000000001 tokens", "drafted_tokens"),
        ("400 tokens", f"{'9' * 400} tokens", "drafted_tokens"),
        ("0.900", "1.001", "position_acceptance_ratio"),
        ("0.900", ", ".join(["0.1"] * 256), "position_acceptance_ratio"),
    ],
)
def test_impossible_values_refuse_the_line(old, new, quantity):
    """I3: one value out of range makes the whole line unbelievable, and the notice names the field."""
    assert SPEC_MESSAGE.count(old) == 1

    assert parse_spec_decoding(SPEC_MESSAGE.replace(old, new)) == (
        Notice("value_out_of_range", quantity),
        Notice("stats_unparsed"),
    )


@pytest.mark.parametrize(
    "message",
    [
        "SpecDecoding metrics: ",
        "SpecDecoding metrics: later",
        "Speculative metrics: Accepted: 5",
        SPEC_MESSAGE[:60],
        SPEC_MESSAGE.replace("rate: 0.", "rate: \uff10.", 1),
        SPEC_MESSAGE.replace("Accepted: ", "Accepted: \uff11", 1),
    ],
)
def test_a_line_without_a_rate_is_reported(message):
    """A torn line, or one with other digits than vLLM prints, is no event; it is counted."""
    assert parse_spec_decoding(message) == (Notice("stats_unparsed"),)


def test_a_field_of_a_later_release_is_named():
    """A field that no release known here prints is reported by its name; the others are read."""
    assert parse_spec_decoding(f"{SPEC_MESSAGE}, Rejected: 4 tokens") == (SPEC._replace(unknown_fields=("Rejected",)),)


DIFFUSION = (
    "DiffusionDecoding metrics: Committed token throughput: 84.00 tokens/s, Mean denoising steps per canvas: 8.00, "
    "Mean tokens committed per denoising step: 4.00, Committed: 840 tokens, Denoising steps: 210, "
    "Canvas positions evaluated: 6720"
)


def test_a_diffusion_models_line_is_read():
    """0.24 and later: what was committed, in how many steps; the ratio of two counts that are there is passed over."""
    line = DiffusionDecoding(None, 84.0, 4.0, 840, 210, 6720)

    assert parse_spec_decoding(DIFFUSION) == (line,)
    nothing = DIFFUSION.replace("canvas: 8.00", "canvas: nan").replace("step: 4.00", "step: nan")
    assert parse_spec_decoding(nothing) == (line._replace(tokens_per_denoising_step=None),)
    assert parse_spec_decoding(f"{DIFFUSION}, Remasked: 3") == (line._replace(unknown_fields=("Remasked",)),)


@pytest.mark.parametrize(
    ("message", "notices"),
    [
        (DIFFUSION.replace("840", "many"), (Notice("stats_unparsed"),)),
        ("DiffusionDecoding metrics: Committed: 5 tokens", (Notice("stats_unparsed"),)),
        (
            DIFFUSION.replace("84.00", "8e99"),
            (Notice("value_out_of_range", "committed_tokens_per_second"), Notice("stats_unparsed")),
        ),
    ],
)
def test_a_diffusion_models_line_that_is_malformed_is_counted(message, notices):
    """A line without its counts, with text for a number, or with an absurd one gives nothing but a notice."""
    assert parse_spec_decoding(message) == notices


@pytest.mark.parametrize("message", ["", "x " + DIFFUSION, "x " + SPEC_MESSAGE])
def test_other_lines_say_nothing(message):
    """Text that merely holds the line is nothing."""
    assert parse_spec_decoding(message) == ()
