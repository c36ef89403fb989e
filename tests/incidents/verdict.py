# SPDX-License-Identifier: Apache-2.0
"""Whether what became of a story is what should have: each fault is a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

from tests.incidents.play import Played, play
from tests.incidents.story import Said, Story, stories
from tests.support.shared import shared

from vllm_watch.analysis.backtest.fired import Fired


@cache
def played(kind: str) -> Mapping[str, Played]:
    """Return what becomes of all stories of a folder; they are played once in a run of the tests."""
    return shared(_play, kind)


def _play(kind: str) -> Mapping[str, Played]:
    return play(stories(kind))


def faults(story: Story, played: Played) -> Iterator[str]:
    """Yield what was not said in time, and what was said and is not true."""
    for said in story.says:
        yield from _unsaid(said, played)
    for alert in played.fired:
        if alert.start >= 0 and alert.alert not in story.may | {said.alert for said in story.says}:
            yield f"{alert.alert} fires after {alert.start:.0f} s"
    for state, wanted in (("stalled", story.stalled), ("down", story.down)):
        since = played.states.get(state)
        if wanted is None and since is not None:
            yield f"it is shown as {state} after {since:.0f} s"
        elif wanted is not None and (since is None or since > wanted):
            when = "never" if since is None else f"only after {since:.0f} s"
            yield f"it is {when} shown as {state}, where {wanted:.0f} s are allowed"


def _unsaid(said: Said, played: Played) -> Iterator[str]:
    alert = found(said, played)
    if alert is None:
        yield f"{said.alert} does not fire"
    elif alert.start > said.within:
        yield f"{said.alert} fires after {alert.start:.0f} s, where {said.within:.0f} s are allowed"
    elif said.until is not None and (alert.end is None or alert.end > said.until):
        yield f"{said.alert} does not end within {said.until:.0f} s"


def found(said: Said, played: Played) -> Fired | None:
    """Return the first time that an alert fires, if it does."""
    return next((alert for alert in played.fired if alert.alert == said.alert), None)
