# SPDX-License-Identifier: Apache-2.0
"""
Recordings through the real rules, in virtual time, with Prometheus' own evaluation.

A recording becomes series as `vllm-watch backfill` makes them; promtool evaluates the shipped rules over them as a
Prometheus would that scrapes the daemon every 5 s. What fired is read from the series ``ALERTS``, which promtool prints
because the replay expects nothing: an expectation that fails is how it shows a value.
"""

from __future__ import annotations

import functools
import json
import re
import tempfile

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.alerts.needed import Groups, needed
from tests.alerts.promtool import promtool
from tests.support.shared import shared
from tests.support.yaml_files import load_yaml

from vllm_watch.exposition.openmetrics import TimeSeriesFile
from vllm_watch.replay.open_recording import open_recording
from vllm_watch.replay.recording import Recording
from vllm_watch.replay.replay import run_recording
from vllm_watch.state.server import ServerSettings, ServerState


RULES = Path(__file__).parents[2] / "alerts" / "rules"
STEP = 5
"""Seconds between two scrapes."""

EVALUATION = 15
"""Seconds between two evaluations of the rules."""

CHAT = {"slo_time_to_first_token_seconds": 0.5, "slo_time_per_output_token_seconds": 0.05}
SOURCES = {(True, True): "both", (True, False): "log", (False, True): "metrics"}
"""What is watched: the log, and /metrics."""

RULE_FILE = "rules.yml"
"""Those that are evaluated, beside what asks for them."""

STALE = "stale"
NOTHING = "_"
FIRING = 'ALERTS{alertstate="firing"}'
ALWAYS_FIRING = frozenset({"Watchdog"})

_NEVER = {"labels": "{}", "value": -987654321}
"""What no query gives: promtool prints only what is not as expected."""

_GOT = re.compile(r'expr: (".*?"), time: ([\dhms]+),\n.*?\n\s+got: (.*)')
_SAMPLE = re.compile(r'\{((?:[^"{}]|"(?:[^"\\]|\\.)*")*)\} ([^\s,]+)')
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Labels = tuple[tuple[str, str], ...]
"""Names and values, the series' name as ``__name__``."""

Answers = dict[int, dict[Labels, float]]
"""What a query gives after each evaluation of the rules, by second."""


class Fired(NamedTuple):
    """An alert that fired: from `start` to `end`, seconds of the recording; `end` is `None` if it never stopped."""

    alert: str
    severity: str
    labels: Mapping[str, str]
    start: int
    end: int | None


def fired(
    folders: Collection[Path], *, has_slo: bool = False, has_log: bool = True, has_metrics: bool = True
) -> dict[str, list[Fired]]:
    """
    Return the alerts that fire over recordings, in order, by the recording's name.

    All of them are servers of one Prometheus, which evaluates its rules once for all. The alert that always fires is
    left out.
    """
    replays = {
        folder.name: replayed(folder, has_slo=has_slo, has_log=has_log, has_metrics=has_metrics) for folder in folders
    }
    longest = max(steps for _, steps in replays.values())
    series = of_the_daemon(longest)
    for found, steps in replays.values():
        series.update({name: [*values, STALE, *[NOTHING] * (longest - steps)] for name, values in found.items()})
    firing = evaluated(series, longest, FIRING)
    return {name: list(_intervals(_of_server(firing, name, steps))) for name, (_, steps) in replays.items()}


def _of_server(firing: Mapping[int, Mapping[Labels, float]], name: str, steps: int) -> Answers:
    """Return what fires while a recording lasts, of its server or of none."""
    return {
        moment: {labels: value for labels, value in now.items() if dict(labels).get("server", name) == name}
        for moment, now in firing.items()
        if moment < steps * STEP
    }


def alerts_of(series: Mapping[str, list[str]], steps: int) -> list[Fired]:
    """Return the alerts that fire over series, each of which has a value for every step."""
    return list(_intervals(evaluated(series, steps, FIRING)))


def evaluated(series: Mapping[str, list[str]], steps: int, query: str) -> Answers:
    """Return what a query gives over series, each of which has a value for every step."""
    return evaluated_together(series, steps, [query])[query]


def evaluated_together(series: Mapping[str, list[str]], steps: int, queries: Collection[str]) -> dict[str, Answers]:
    """
    Return what queries give over series, by the query.

    The rules that the queries depend on are evaluated once for all of them.
    """
    moments = range(0, steps * STEP, EVALUATION)
    groups = needed(groups_at_worst(), queries)
    document = {
        "rule_files": [RULE_FILE],
        "evaluation_interval": f"{EVALUATION}s",
        "group_eval_order": [group["name"] for group in groups],
        "tests": [
            {
                "interval": f"{STEP}s",
                "input_series": [{"series": name, "values": " ".join(values)} for name, values in series.items()],
                "promql_expr_test": [
                    {"expr": query, "eval_time": f"{moment}s", "exp_samples": [_NEVER]}
                    for query in queries
                    for moment in moments
                ],
            }
        ],
    }
    found = _promtool(document, groups)
    assert {query for query, _ in found} <= set(queries)
    return {query: {moment: found.get((query, moment), {}) for moment in moments} for query in queries}


@functools.cache
def groups_at_worst() -> Groups:
    """
    Return the groups of rules in the order in which an alert sees what was recorded an evaluation ago.

    Prometheus evaluates each group at a moment of its own, so that may be; where no order is given promtool takes any.
    """
    files = (RULES / "alerts.yml", RULES / "recording.yml")
    return [group for path in files for group in load_yaml(path.read_text(encoding="utf-8"))["groups"]]


def _promtool(document: object, groups: Groups) -> dict[tuple[str, int], dict[Labels, float]]:
    """Return what promtool got, by query and second."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "replay.yml"
        path.write_text(json.dumps(document))  # JSON is YAML, and written in a hundredth of the time.
        path.with_name(RULE_FILE).write_text(json.dumps({"groups": groups}))
        _, printed = promtool("test", "rules", path)
    found = {(json.loads(query), _seconds(moment)): dict(_samples(got)) for query, moment, got in _GOT.findall(printed)}
    if not found:
        raise RuntimeError(f"promtool evaluated nothing: {printed[:2000]}")
    return found


def _samples(text: str) -> Iterator[tuple[Labels, float]]:
    for labels, value in _SAMPLE.findall(text):
        yield tuple(_LABEL.findall(labels)), float(value)


def _seconds(text: str) -> int:
    units = {"h": 3600, "m": 60, "s": 1}
    return sum(int(number) * units[unit] for number, unit in re.findall(r"(\d+)([hms])", text))


def _intervals(firing: Mapping[int, Mapping[Labels, float]]) -> Iterator[Fired]:
    since: dict[Labels, int] = {}
    spans: list[tuple[int, int | None, Labels]] = []
    for moment, now in firing.items():
        spans += [(since.pop(labels), moment, labels) for labels in set(since) - set(now)]
        for labels in now:
            since.setdefault(labels, moment)
    spans += [(start, None, labels) for labels, start in since.items()]
    for start, end, alert in sorted(spans, key=lambda span: (span[0], span[2])):
        labels = dict(alert)
        del labels["__name__"]
        if labels["alertname"] not in ALWAYS_FIRING:
            yield Fired(labels.pop("alertname"), labels.pop("severity"), labels, start, end)


def replayed(folder: Path, *, has_slo: bool, has_log: bool, has_metrics: bool) -> tuple[dict[str, list[str]], int]:
    """
    Return the series of a recording's server and the number of steps; each recording is replayed once in a run.

    An objective adds series and changes none.
    """
    series, steps = shared(_replay, folder, SOURCES[has_log, has_metrics])
    if has_slo:
        return series, steps
    return {name: values for name, values in series.items() if not name.startswith("vllm_watch_slo_")}, steps


def _replay(folder: Path, sources: str) -> tuple[dict[str, list[str]], int]:
    interval = float(STEP) if sources != "log" else None
    settings = ServerSettings(folder.name, sources != "metrics", interval, slo=CHAT)
    return series_of(open_recording(folder), settings)


def of_the_daemon(steps: int) -> dict[str, list[str]]:
    """Return what is there wherever a daemon is scraped."""
    return {'up{job="vllm-watch",instance="127.0.0.1:9468"}': ["1"] * steps, "vllm_watch_build_info": ["1"] * steps}


def series_of(recording: Recording, settings: ServerSettings) -> tuple[dict[str, list[str]], int]:
    """Return the series of a recording's server, with a value, nothing or the mark of staleness for every step."""
    state = ServerState(settings)
    gathered = TimeSeriesFile()
    moments = []
    for snapshot in run_recording(recording, state, STEP):
        gathered.add(snapshot)
        moments.append(snapshot.at)
    points: dict[str, dict[int, str]] = defaultdict(dict)
    for line in "".join(gathered.texts()).splitlines():
        if not line.startswith("#"):
            name, value, at = line.rsplit(" ", 2)
            points[name][round((float(at) - moments[0]) / STEP)] = value
    return {name: _with_gaps(values, len(moments)) for name, values in points.items()}, len(moments)


def _with_gaps(values: Mapping[int, str], steps: int) -> list[str]:
    """Return a value for every step; a series that ends is stale at once, as it is after a scrape without it."""
    found = []
    for step in range(steps):
        if step in values:
            found.append(values[step])
        else:
            found.append(STALE if step - 1 in values else NOTHING)
    return found
