# SPDX-License-Identifier: Apache-2.0
"""
What to do first about an engine in a bad state.

`first_steps.json` is made from the runbooks (``make generate``).
"""

from __future__ import annotations

from functools import cache
from importlib import resources

import msgspec

from vllm_watch.catalog.states import EngineState


class FirstSteps(msgspec.Struct, frozen=True):
    """
    The beginning of a runbook. Code in its texts is between back quotes.

    Args:
        runbook: The runbook's name, that of its alert.
        url: Where the whole runbook is.
        before: What to know before the first step.
        steps: What to do, in this order.
    """

    runbook: str
    url: str
    before: tuple[str, ...]
    steps: tuple[str, ...]


@cache
def first_steps() -> dict[EngineState, FirstSteps]:
    """Return what to do first by state; a state that needs nothing is not there."""
    text = (resources.files("vllm_watch.catalog") / "first_steps.json").read_bytes()
    return msgspec.json.decode(text, type=dict[EngineState, FirstSteps])
