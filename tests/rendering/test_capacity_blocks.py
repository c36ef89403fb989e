# SPDX-License-Identifier: Apache-2.0
"""What a report says of how much a server carries: output and prompts, for each GPU, and what to plan with."""

from __future__ import annotations

from msgspec.structs import replace
from tests.support.load_tests import run

from vllm_watch.analysis.loadtest.load_test import Capacity
from vllm_watch.analysis.rendering.server_use import capacity_blocks


CAPACITY = Capacity(
    tokens_per_second=1000.0,
    low=900.0,
    high=1100.0,
    basis="curve",
    explanation="at least what was seen",
    prompt_tokens_per_second=2000.0,
)


def rows(gpus=None):
    """Return the rows of the table of a run on so many GPUs, by label."""
    _, table = capacity_blocks(replace(run(), capacity=CAPACITY, gpus=gpus))
    return dict(table.groups[0].rows)


def test_output_and_prompts_are_told_apart_and_together():
    """Who plans by output, by prompts or by both has a number of each, and they are for the same moment."""
    found = rows()

    assert found["Carries at least (output tokens/s)"] == "900"
    assert found["computed prompt tokens/s with at least that output"] == "1,800"
    assert found["both together, at least (tokens/s)"] == "2,700"
    assert found["plan with 70 to 85 % of at least, a server (output tokens/s)"] == "630 to 765"


def test_of_several_gpus_the_share_of_each_is_told():
    """A server of four GPUs has a quarter of the plan for each of them."""
    found = rows(gpus=4)

    assert found["the same for each of 4 GPUs (output tokens/s)"] == "158 to 191"
