# SPDX-License-Identifier: Apache-2.0
"""`alerts/INCIDENTS.md`: each incident, where it was reported, what finds it after how long, or why nothing can."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.incidents.play import Played
from tests.incidents.story import Story, stories
from tests.incidents.verdict import found, played

from vllm_watch.analysis.backtest.fired import Alert
from vllm_watch.daemon.catalog.number_texts import duration


FILE = Path(__file__).parents[2] / "alerts" / "INCIDENTS.md"

_INTRODUCTION = """\
# Incidents, and what finds them

`make incidents` writes this file. Each incident is one that somebody has reported in public. It was made again from a
/metrics of the release, played through the daemon and the rules in virtual time, after minutes of healthy traffic;
[tests/incidents/](../tests/incidents/README.md) has each as a short file. Times are from its beginning until the alert
fires, to which Alertmanager's `group_wait` is added. A page wakes somebody; all else is a warning or advice.
"""
_HEALTHY = """
## Healthy servers that look like one of them

Nobody is woken by these.
"""


def document() -> str:
    """Return the whole file."""
    return "\n".join(
        [
            _INTRODUCTION,
            "| incident | reported in | found by | after |",
            "|---|---|---|---|",
            *_rows("reported"),
            _HEALTHY,
            "| what happens | compare | what is said |",
            "|---|---|---|",
            *_twins(),
            "",
        ]
    )


def _rows(kind: str) -> Iterator[str]:
    outcomes = played()
    for name, story in stories(kind).items():
        yield f"| {story.title} | {_reports(story)} | {_by(story, outcomes[name])} | {_after(story, outcomes[name])} |"


def _twins() -> Iterator[str]:
    outcomes = played()
    for name, story in stories("healthy").items():
        said = sorted({alert.alertname for alert in outcomes[name].fired if alert.start >= 0})
        yield f"| {story.title} | {_reports(story)} | {', '.join(said) or 'nothing'} |"


def _reports(story: Story) -> str:
    return ", ".join(story.reports)


def _by(story: Story, outcome: Played) -> str:
    if story.unseen is not None:
        return f"nothing: {story.unseen}"
    return ", ".join(f"[{said.alert}](runbooks/{said.alert}.md){_page(found(said, outcome))}" for said in story.says)


def _page(alert: Alert | None) -> str:
    return " (page)" if alert is not None and alert.severity == "critical" else ""


def _after(story: Story, outcome: Played) -> str:
    alerts = [found(said, outcome) for said in story.says]
    return ", ".join("never" if alert is None else duration(alert.start) for alert in alerts)
