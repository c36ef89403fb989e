# SPDX-License-Identifier: Apache-2.0
"""What the dashboard advises on the number of draft tokens, and of which time its figures are."""

from __future__ import annotations

import pytest

from tests.dashboards.api import Api
from tests.dashboards.loaded import Span
from tests.dashboards.replayed import given
from tests.dashboards.shipped import dashboard
from tests.dashboards.shown import shown, words


pytestmark = pytest.mark.needs_tool("promtool")

UID = "vllm-watch-spec-decode"
TITLE = "Advice on the number of draft tokens, over the whole time range"
STEPS = 60
LABELS = 'instance="a:1",job="vllm-watch",server="s",model_name="m",engine="0"'
STATES = ("idle", "serving", "stalled", "down", "unknown")


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
        ({**in_state("stalled"), **drafting(0.5, drafted=0.0)}, -2),
        (in_state("down"), -3),
    ],
)
def test_it_is_said_whether_a_server_speculates(series, use):
    """A server without drafts is in the table, too, and so is one that answers nobody or of which nothing is known."""
    assert advised("Speculation", series) == use


def test_the_verdict_is_the_first_column():
    """Behind the names of the engine stands what to do, and then why."""
    (panel,) = (panel for panel in dashboard(UID)["panels"] if panel["title"] == TITLE)
    assert panel["targets"][0]["legendFormat"] == "Advice"
    assert set(words(UID, TITLE, "Advice")) == {"0", "1", "2", "3"}


FIGURES = ("Acceptance length", "Accepted", "Rejected per output token", "TPOT", "Gain of drafts, at most")


def test_figures_are_of_now_while_there_are_drafts(prometheus):
    """In the middle of the overload each figure is of that moment, and says so."""
    start, _ = prometheus.spans["day"]
    found = shown(prometheus, UID, "day", Span(start, start + 400))
    assert [each.name.split(", ")[1] for title in FIGURES for each in found[title]] == ["now"] * len(FIGURES)


def growth(prometheus, counter, span):
    """Return how much a counter of a recording grew from its first to its last value."""
    (found,) = Api(prometheus.url).range(f'sum(vllm_watch_{counter}{{server="busy"}})', span.start, span.end, 5)
    return max(found.values.values()) - min(found.values.values())


def test_figures_of_an_idle_server_are_of_the_range(prometheus):
    """Where nothing is drafted at the end each figure is that of the whole range, says so, and is what was counted."""
    span = prometheus.spans["busy"]
    found = shown(prometheus, UID, "busy", span)
    names = [each.name for title in FIGURES for each in found[title]]
    accepted, drafted, generated = (
        growth(prometheus, f"{counter}_tokens_total", span)
        for counter in ("spec_decode_accepted", "spec_decode_draft", "generation")
    )

    assert [name.split(", ", 1)[1] for name in names] == ["mean of range"] * len(FIGURES)
    assert found["Accepted"][0].value == pytest.approx(accepted / drafted, rel=0.05)
    assert found["Rejected per output token"][0].value == pytest.approx((drafted - accepted) / generated, rel=0.05)


def test_the_gain_is_what_separates_the_two_lines(prometheus):
    """The upper bound of the gain is the time per step divided by the time per token, both measured."""
    start, _ = prometheus.spans["day"]
    end = start + 400
    found = shown(prometheus, UID, "day", Span(start, end))
    itl, outputs, tokens, first = (
        f'sum(rate(vllm_watch_{counter}{{server="day"}}[20s]))'
        for counter in (
            "inter_token_latency_seconds_sum",
            "inter_token_latency_seconds_count",
            "generation_tokens_total",
            "time_to_first_token_seconds_count",
        )
    )
    api = Api(prometheus.url)
    (per_step,), (per_token,) = (
        api.instant(expr, end)[0].values.values() for expr in (f"{itl} / {outputs}", f"{itl} / ({tokens} - {first})")
    )

    assert found["TPOT"][0].value == pytest.approx(per_token)
    assert found["Gain of drafts, at most"][0].value == pytest.approx(per_step / per_token)
    assert per_step > per_token


def test_each_position_has_a_line_of_its_own():
    """Positions that are accepted alike do not hide each other: each is judged on its own line."""
    series = drafting(0.9, 0.6, 0.6, 0.1)
    judged = list(given(UID, "Which positions are worth it", "position {{position}}", series, STEPS).values())[-1]
    assert {dict(labels)["position"]: value for labels, value in judged.items()} == {"0": 2, "1": 1, "2": 1, "3": 0}
    assert set(words(UID, "Which positions are worth it")) == {"0", "1", "2"}


@pytest.mark.parametrize(("ratio", "color"), [(0.1, "#E69F00"), (0.9, "text")])
def test_what_is_computed_in_vain_is_coloured(ratio, color):
    """More rejected than generated tokens are a warning."""
    series = {
        f"vllm_watch_spec_decode_{name}{{{LABELS}}}": [f"{value:g}"] * STEPS
        for name, value in {
            "drafted_tokens_per_second": 400.0,
            "accepted_tokens_per_second": 400 * ratio,
            "draft_tokens_total": 1.0,
        }.items()
    }
    series[f"vllm_watch_generation_tokens_per_second{{{LABELS}}}"] = [f"{100 + 400 * ratio:g}"] * STEPS
    found = list(given(UID, "Rejected per output token", "highest, now", series, STEPS).values())[-1]
    (panel,) = (panel for panel in dashboard(UID)["panels"] if panel["title"] == "Rejected per output token")
    steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]

    assert list(found.values()) == pytest.approx([400 * (1 - ratio) / (100 + 400 * ratio)])
    assert [step["color"] for step in steps if (step["value"] or 0) <= next(iter(found.values()))][-1] == color
