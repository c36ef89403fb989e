# SPDX-License-Identifier: Apache-2.0
"""Energy and cost of tokens on the boards: over a range, by hand, and nothing where a GPU's share is not known."""

from __future__ import annotations

import pytest

from tests.alerts.replay import NOTHING, STEP
from tests.dashboards.replayed import Query, given_together


STEPS = 20 * 60 // STEP
END = (STEPS - 1) * STEP // 30 * 30
"""The last evaluation, at which the time range of ten minutes ends."""

LATE = END // STEP - 595 // STEP
"""The step after the one at which this range begins."""

TARGET = 'instance="a:1",job="vllm-watch",server="s"'
ENGINE = f'{TARGET},model_name="m",engine="0"'
ENERGY = 'vllm_watch_gpu_energy_joules_total{instance="node:9400",job="dcgm",gpu="GPU-1"}'

LOAD_TEST = (
    "Mean power, GPUs",
    "J per output token",
    "Tokens per joule",
    "Cost, 1M output",
    "Cost, 1M input",
    "Cost, 1M tokens",
)
COLUMNS = ("Mean power", "J per output token", "Tokens per J", "Cost, 1M output", "Cost, 1M prompt", "Cost, 1M tokens")
QUERIES = {
    **{title: Query("vllm-watch-load-test", title, "this range") for title in LOAD_TEST},
    **{
        f"table: {column}": Query("vllm-watch-capacity", "Energy and cost of tokens", column)
        for column in (*COLUMNS, "Idle power")
    },
}

pytestmark = pytest.mark.needs_tool("promtool")


def per_second(rate):
    """Return a counter."""
    return [f"{rate * STEP * step:g}" for step in range(STEPS)]


def gpu(name="GPU-1", shared="false"):
    """Return that the server uses a GPU."""
    return {f'vllm_watch_server_gpu_info{{{TARGET},gpu="{name}",how="pid",shared="{shared}"}}': ["1"] * STEPS}


def work():
    """Return a server's tokens: 100 generated and 300 of prompts a second, of which 100 are computed."""
    return {
        f"vllm_watch_generation_tokens_total{{{ENGINE}}}": per_second(100),
        f"vllm_watch_prompt_tokens_total{{{ENGINE}}}": per_second(300),
        f'vllm_watch_prompt_tokens_by_source_total{{{ENGINE},source="local_compute"}}': per_second(100),
        f'vllm_watch_prompt_tokens_by_source_total{{{ENGINE},source="local_cache_hit"}}': per_second(200),
        f"vllm_watch_requests_running{{{ENGINE}}}": ["2"] * STEPS,
        f"vllm_watch_requests_waiting{{{ENGINE}}}": ["0"] * STEPS,
        f'vllm_watch_engine_state{{{ENGINE},state="idle"}}': ["0"] * STEPS,
    }


def shown(series):
    """Return what the figures and the table show at the end."""
    found = given_together(QUERIES.values(), series, STEPS)
    return {name: value for name, query in QUERIES.items() for value in found[query][END].values()}


def test_energy_and_cost_of_a_range_are_those_worked_out_by_hand():
    """300 W that another exporter reads, and 3.6 an hour, at 100 tokens/s generated."""
    found = shown(
        {**work(), **gpu(), ENERGY: per_second(300), f"vllm_watch_server_cost_per_hour{{{TARGET}}}": ["3.6"] * STEPS}
    )

    expected = (300, 3, 2 / 3, 10, 10 / 3, 2.5)
    both = {
        **dict(zip(LOAD_TEST, expected, strict=True)),
        **dict(zip((f"table: {c}" for c in COLUMNS), expected, strict=True)),
    }
    assert found == pytest.approx(both, rel=1e-3)


WITHOUT_ENERGY = {
    "none": {},
    "shared": gpu(shared="true"),
    "one of two is not read": {**gpu(), **gpu("GPU-2")},
    "divided": {**gpu(), 'vllm_watch_gpu_info{instance="node:9400",job="dcgm",gpu="GPU-1",mig="1"}': ["1"] * STEPS},
}


def test_without_all_gpus_of_its_own_there_is_no_energy():
    """What cannot be known is absent, with a price or without; without a price there is no cost."""
    series = {}
    for server, gpus in WITHOUT_ENERGY.items():
        for text, values in {**work(), **gpus, ENERGY: per_second(300)}.items():
            series[text.replace('server="s"', f'server="{server}"').replace('gpu="GPU', f'gpu="{server}')] = values

    assert shown(series) == {}


def test_a_gpu_that_was_not_read_at_the_start_of_the_range_has_no_energy_of_it():
    """What was used before the first reading is not known; the table begins where it can."""
    late = [NOTHING] * LATE + per_second(300)[LATE:]
    found = shown({**work(), **gpu(), ENERGY: late})

    assert set(found) == {f"table: {column}" for column in COLUMNS[:3]}
    assert found["table: Mean power"] == pytest.approx(300)


def test_a_server_without_requests_shows_its_idle_power():
    """It has no tokens to divide by, so nothing is said of tokens, whatever it costs."""
    idle = {f'vllm_watch_engine_state{{{ENGINE},state="idle"}}': ["1"] * STEPS}
    tokens = {f"vllm_watch_{kind}_tokens_total{{{ENGINE}}}": ["0"] * STEPS for kind in ("generation", "prompt")}
    price = {f"vllm_watch_server_cost_per_hour{{{TARGET}}}": ["3.6"] * STEPS}
    found = shown({**idle, **tokens, **price, **gpu(), ENERGY: per_second(80)})

    assert found == pytest.approx({"Mean power, GPUs": 80, "table: Mean power": 80, "table: Idle power": 80})
