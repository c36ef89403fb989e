# SPDX-License-Identifier: Apache-2.0
"""What the dashboard advises on the number of draft tokens."""

from __future__ import annotations

import pytest

from tests.dashboards.replayed import given


pytestmark = pytest.mark.needs_tool("promtool")

UID = "vllm-watch-spec-decode"
TITLE = "Advice on the number of draft tokens"
STEPS = 60
LABELS = 'instance="a:1",job="vllm-watch",server="s",model_name="m",engine="0"'
STATES = ("idle", "serving", "unknown")


def drafting(*positions, drafted=300.0):
    """Return an engine's series while so many of its drafts are accepted at each position."""
    name = "vllm_watch_spec_decode"
    values = {
        f'{name}_position_acceptance_ratio{{{LABELS},position="{at}"}}': [f"{p}"] for at, p in enumerate(positions)
    }
    values[f"{name}_drafted_tokens_per_second{{{LABELS}}}"] = [f"{drafted}"]
    return {series: value * STEPS for series, value in values.items()}


def in_state(now):
    """Return an engine's state."""
    return {
        f'vllm_watch_engine_state{{{LABELS},state="{state}"}}': [f"{int(state == now)}"] * STEPS for state in STATES
    }


def advised(column, series):
    """Return the only value of a column at the end."""
    (value,) = list(given(UID, TITLE, column, series, STEPS).values())[-1].values()
    return value


@pytest.mark.parametrize(
    ("positions", "advice", "worthwhile"),
    [
        ((0.95, 0.9, 0.85), 3, 3),
        ((0.95, 0.9, 0.8), 3, 3),
        ((0.9, 0.7, 0.5), 2, 3),
        ((0.9, 0.6, 0.49), 1, 2),
        ((0.4, 0.2, 0.1), 0, 0),
        ((0.9,), 3, 1),
        ((0.3,), 0, 0),
    ],
)
def test_advice_follows_the_rule(positions, advice, worthwhile):
    """The last position decides: at 80 % more, at 50 % right, below it as many as pay, or none."""
    assert advised("Advice", drafting(*positions)) == advice
    assert advised("Worthwhile", drafting(*positions)) == worthwhile


def test_every_draft_counts_alike():
    """A busy moment with bad drafts outweighs a quiet one with good ones by what it drafted."""
    quiet, busy = drafting(1.0, drafted=100.0), drafting(0.2, drafted=300.0)
    series = {name: values[: STEPS // 2] + busy[name][: STEPS // 2] for name, values in quiet.items()}
    assert advised("Last position", series) == pytest.approx((100 + 0.2 * 300) / 400, abs=0.05)


def test_one_more_is_accepted_as_often_as_the_others():
    """With 0.8 after every accepted token the estimate for a fourth is 0.8 to the power of 4."""
    assert advised("One more (est.)", drafting(0.8, 0.8**2, 0.8**3)) == pytest.approx(0.8**4)


@pytest.mark.parametrize(
    ("series", "use"),
    [
        ({**in_state("serving"), **drafting(0.5)}, 2),
        ({**in_state("idle"), f"vllm_watch_num_speculative_tokens{{{LABELS}}}": ["3"] * STEPS}, 1),
        ({**in_state("idle"), f"vllm_watch_spec_decode_draft_tokens_total{{{LABELS}}}": ["0"] * STEPS}, 1),
        (in_state("serving"), 0),
        (in_state("unknown"), -1),
    ],
)
def test_it_is_said_whether_a_server_speculates(series, use):
    """A server without speculative decoding is in the table, too, and so is one of which nothing is known."""
    assert advised("Speculation", series) == use
