# SPDX-License-Identifier: Apache-2.0
"""Whether what became of a story is what should have: each fault is a sentence."""

from __future__ import annotations

import re

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tests.incidents.play import Played, play
from tests.incidents.story import KINDS, Said, Story, stories
from tests.support.shared import shared
from tests.support.yaml_files import load_yaml

from vllm_watch.analysis.backtest.fired import Alert


ALERTMANAGER = Path(__file__).parents[2] / "alerts" / "alertmanager" / "alertmanager.yml"
GROUP_WAIT = {"critical": 10, "warning": 30, "info": 600, "none": 0}
"""Seconds until the first message of a group, by its severity: what is inhibited by then is not sent."""
AGAIN = 30
"""Seconds until the next message of a group of pages, at most."""

_MATCHER = re.compile(r'(\w+)=(~?)"(.*)"')


@cache
def played() -> Mapping[str, Played]:
    """Return what becomes of all stories; they are played once in a run of the tests."""
    return shared(_play_all)


def _play_all() -> Mapping[str, Played]:
    return play({name: story for kind in KINDS for name, story in stories(kind).items()})


def faults(story: Story, played: Played) -> Iterator[str]:
    """Yield what was not said in time, and what was said and is not true."""
    for said in story.says:
        yield from _unsaid(said, played)
    for alert in sent(played.fired):
        if alert.start >= 0 and alert.alertname not in story.may | {said.alert for said in story.says}:
            yield f"{alert.alertname} fires after {alert.start:.0f} s"
    for state, wanted in (("stalled", story.stalled), ("down", story.down)):
        since = played.states.get(state)
        if wanted is None and since is not None:
            yield f"it is shown as {state} after {since:.0f} s, which the story does not say ({state}: SECONDS)"
        elif wanted is not None and (since is None or since > wanted):
            when = "never" if since is None else f"only after {since:.0f} s"
            yield f"it is {when} shown as {state}, where {wanted:.0f} s are allowed"


def sent(fired: Sequence[Alert]) -> list[Alert]:
    """Return the alerts that Alertmanager sends: those that no other one inhibits at any time at which it would."""
    return [
        alert for alert in fired if any(not is_inhibited(alert, firing(fired, at)) for at in times_of(alert, fired))
    ]


def times_of(alert: Alert, fired: Iterable[Alert]) -> list[float]:
    """Return when a message about an alert is due: a while after it begins, and after each end of another one."""
    first = alert.start + GROUP_WAIT[alert.severity]
    later = (other.end + AGAIN for other in fired if other.end is not None)
    return [at for at in (first, *later) if at >= first and (alert.end is None or at < alert.end)]


def firing(fired: Iterable[Alert], at: float) -> list[Alert]:
    """Return the alerts that fire at a time."""
    return [each for each in fired if each.start <= at and (each.end is None or each.end > at)]


def is_inhibited(alert: Alert, by: Iterable[Alert]) -> bool:
    """Return whether any of the alerts that fire inhibits one, as Alertmanager has it."""
    others = [each for each in by if each is not alert]
    return any(_inhibits(rule, other, alert) for rule in _rules() for other in others)


def _inhibits(rule: Mapping[str, Any], source: Alert, target: Alert) -> bool:
    return (
        _matches(rule["source_matchers"], source)
        and _matches(rule["target_matchers"], target)
        and all(_value(source, name) == _value(target, name) for name in rule["equal"])
    )


def _matches(matchers: Iterable[str], alert: Alert) -> bool:
    return all(
        re.fullmatch(pattern if is_pattern else re.escape(pattern), _value(alert, name))
        for name, is_pattern, pattern in (_MATCHER.fullmatch(matcher).groups() for matcher in matchers)  # type: ignore[union-attr]
    )


def _value(alert: Alert, name: str) -> str:
    own = {"alertname": alert.alertname, "severity": alert.severity}
    return own.get(name) or alert.labels.get(name, "")


@cache
def _rules() -> list[dict[str, Any]]:
    return load_yaml(ALERTMANAGER.read_text(encoding="utf-8"))["inhibit_rules"]


def _unsaid(said: Said, played: Played) -> Iterator[str]:
    alert = found(said, played)
    if alert is None:
        yield f"{said.alert} does not fire" + (f" with the severity {said.severity}" if said.severity else "")
    elif alert.start > said.within:
        yield f"{said.alert} fires after {alert.start:.0f} s, where {said.within:.0f} s are allowed"
    elif said.until is not None and (alert.end is None or alert.end > said.until):
        yield f"{said.alert} does not end within {said.until:.0f} s"


def found(said: Said, played: Played) -> Alert | None:
    """Return the first time that an alert fires, if it does."""
    of_name = (alert for alert in played.fired if alert.alertname == said.alert)
    return next((alert for alert in of_name if said.severity in {None, alert.severity}), None)
