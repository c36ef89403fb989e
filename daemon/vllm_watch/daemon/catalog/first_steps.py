# SPDX-License-Identifier: Apache-2.0
"""
What to do first about an engine in a bad state.

`first_steps.json` is made from the runbooks (``make generate``).
"""

from __future__ import annotations

from functools import cache
from importlib import resources

import msgspec

from vllm_watch.daemon.catalog.states import EngineState


class FirstSteps(msgspec.Struct, frozen=True):
    """
    What a runbook says to do first. Code in its texts is between back quotes.

    Args:
        runbook: The runbook's name, that of its alert.
        url: Where the whole runbook is.
        steps: What to do while the cause is not known, in this order.
        by_cause: What to do about each cause.
    """

    runbook: str
    url: str
    steps: tuple[str, ...]
    by_cause: dict[str, tuple[str, ...]] = {}

    def about(self, cause: str | None) -> tuple[str, ...]:
        """Return what to do about a cause, or while it is not known."""
        return self.by_cause.get(cause or "", self.steps)


@cache
def first_steps() -> dict[EngineState, FirstSteps]:
    """Return what to do first by state; a state that needs nothing is not there."""
    text = (resources.files("vllm_watch.daemon.catalog") / "first_steps.json").read_bytes()
    return msgspec.json.decode(text, type=dict[EngineState, FirstSteps])
