# SPDX-License-Identifier: Apache-2.0
"""What tokens cost at a price per hour: worked out by hand, and nothing of what is not known."""

from __future__ import annotations

import pytest

from vllm_watch.analysis.backtest.rule_set import shipped_thresholds
from vllm_watch.analysis.loadtest.energy_and_cost import LEAST_TOKENS, priced
from vllm_watch.analysis.loadtest.load_test import Result, Run, Steady


def test_the_rules_ask_for_as_many_tokens():
    """What is too few for a report is too few for a recorded series, too."""
    assert float(shipped_thresholds()["quotient_tokens"]) == LEAST_TOKENS


def _result(**known):
    return Result(
        view="client", **{"duration_s": 100.0, "total_input_tokens": 90_000, "total_output_tokens": 10_000, **known}
    )


def _costs(result):
    return (
        result.cost_per_million_input_tokens,
        result.cost_per_million_output_tokens,
        result.cost_per_million_tokens,
    )


def test_cost_is_the_price_of_the_time_by_each_count_of_tokens():
    """3.6 an hour are 0.1 in 100 s: by 90,000, 10,000 and 100,000 tokens; in each view by its own time."""
    client, server = _result(), _result(duration_s=50.0)
    run = priced(Run(source=("a",), name="a", result=client, views=(client, server)), 3.6)

    assert run.cost_per_hour == 3.6
    assert _costs(run.result) == _costs(run.views[0]) == pytest.approx((10 / 9, 10.0, 1.0))
    assert _costs(run.views[1]) == pytest.approx((5 / 9, 5.0, 0.5))


def test_a_given_price_counts_more_than_that_of_the_source():
    """Without either there is no cost, and the run is as it was."""
    run = Run(source=("a",), name="a", result=_result())

    assert priced(run) == run
    known = Run(source=("a",), name="a", result=_result(), cost_per_hour=7.2)
    assert priced(known).result.cost_per_million_output_tokens == pytest.approx(20.0)
    assert priced(known, 3.6).result.cost_per_million_output_tokens == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("known", "costs"),
    [
        ({"total_input_tokens": None}, (None, 10.0, None)),
        ({"total_output_tokens": 999}, (10 / 9, None, 0.1 / 90_999 * 1e6)),
        ({"total_output_tokens": 1000}, (10 / 9, 100.0, 0.1 / 91_000 * 1e6)),
        ({"duration_s": None}, (None, None, None)),
    ],
)
def test_what_is_not_known_has_no_cost(known, costs):
    """Tokens or a time that are not known, or fewer than 1,000 tokens, give no quotient."""
    run = priced(Run(source=("a",), name="a", result=_result(**known)), 3.6)

    assert _costs(run.result) == tuple(None if cost is None else pytest.approx(cost) for cost in costs)


def test_the_steady_window_and_its_parts_have_costs():
    """Each part costs what its rate says; a part without tokens has none, and then none is compared."""
    steady = Steady(start=0.0, end=100.0, method="m", result=_result(), blocks={"output_throughput": (100.0, 50.0)})
    found = priced(Run(source=("a",), name="a", steady=steady), 3.6).steady

    assert _costs(found.result) == pytest.approx((10 / 9, 10.0, 1.0))
    assert found.blocks["cost_per_million_output_tokens"] == pytest.approx((10.0, 20.0))
    still = Steady(start=0.0, end=100.0, method="m", result=_result(), blocks={"output_throughput": (100.0, 0.0)})
    assert set(priced(Run(source=("a",), name="a", steady=still), 3.6).steady.blocks) == {"output_throughput"}
