# SPDX-License-Identifier: Apache-2.0
"""Runbooks say what is so: their queries name series that there are, their searches find lines that vLLM prints."""

from __future__ import annotations

import json
import re
import subprocess

from itertools import groupby

import promql_parser as promql
import pytest

from tests.alerts.replay import STEP, of_the_daemon, replayed
from tests.alerts.runbooks import (
    ALERTS,
    RUNBOOKS,
    answered,
    blocks,
    compares,
    greps,
    named_labels,
    sections,
)
from tests.alerts.shapes import selectors
from tests.support.recordings import NAMES, RECORDINGS, log_of, snapshots
from tests.support.yaml_files import load_yaml

from vllm_watch.daemon.catalog.codes import severity_rank
from vllm_watch.daemon.catalog.event_texts import FAILURE_RUNBOOKS
from vllm_watch.daemon.exposition.json_view import server_view


ROOT = ALERTS.parent
HEADINGS = ["Meaning", "Impact", "Diagnosis", "Mitigation", "When it is a false alarm"]

BY_PROMETHEUS = {"up": {"job", "instance"}, "ALERTS": {"alertname", "alertstate"}}
"""Series that Prometheus makes itself."""

TARGET = {"job", "instance"}

NOT_IN_THE_CORPUS = {
    "Free memory on device": "0.9.1 and later; vllm/v1/worker/utils.py of 0.32.0",
    "To serve at least one request": "vllm/v1/core/kv_cache_utils.py of 0.32.0",
    "Releasing expired KV blocks": "0.11.0 and later; the NIXL connector of 0.32.0",
    "NIXL transfer failure": "0.15 and later; the NIXL connector of 0.32.0",
    "RPC call to": "0.6.5 and later; vllm/v1/executor/multiproc_executor.py of 0.32.0",
}
"""Lines that no log of the tests has, and where their words were read."""

_ENTRY = re.compile(r"^### `(\w+)`[\s\S]*?^\* Type: (\w+) .* labels: (.*)$", re.MULTILINE)
_ROW = re.compile(r"^\| \[(\w+)\]\(([^)]+)\) \| ([\w, ]+) \| (\w+) \| (.+) \|$", re.MULTILINE)


def load(name):
    """Return the rules of a rule file."""
    document = load_yaml((ALERTS / "rules" / name).read_text(encoding="utf-8"))
    return [rule for group in document["groups"] for rule in group["rules"]]


RULES = [*load("recording.yml"), *load("alerts.yml")]
ALERT_RULES = {
    name: list(same) for name, same in groupby((rule for rule in RULES if "alert" in rule), lambda rule: rule["alert"])
}
"""The rules of each alert: two, where it has two severities."""
EXPRESSIONS = {rule["record"]: rule["expr"] for rule in RULES if "record" in rule}
TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in sorted(RUNBOOKS.glob("*.md"))}

FILTERS = sorted(
    {found for text in TEXTS.values() for found in re.findall(r"/snapshot \| jq '(.+)'$", text, re.MULTILINE)}
)

each_runbook = pytest.mark.parametrize("name", TEXTS)


def documented():
    """Return the labels of each series in METRICS.md, by every name that it has in a query."""
    found = {}
    for name, kind, listed in _ENTRY.findall((ROOT / "daemon" / "METRICS.md").read_text(encoding="utf-8")):
        labels = set(re.findall(r"`(\w+)`", listed))
        if kind == "histogram":
            found |= {f"{name}_bucket": {*labels, "le"}, f"{name}_sum": labels, f"{name}_count": labels}
        else:
            found[name] = labels
    return found


SERIES = {**documented(), **BY_PROMETHEUS}


def labels_of(name):
    """Return the labels of a series or of what a rule records, which has those of what it is made from first."""
    if name not in EXPRESSIONS:
        return SERIES[name] | TARGET
    first, *_ = selectors(promql.parse(EXPRESSIONS[name]))
    return labels_of(first.name) - {"le", "quantile"}


def queries(name):
    """Return the queries of a runbook."""
    return blocks(TEXTS[name], "promql")


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """All logs of the tests, in one file."""
    every = tmp_path_factory.mktemp("logs") / "vllm.log"
    corpus = [path.read_bytes() for path in ROOT.glob("tests/corpus/*/vllm.log")]
    every.write_bytes(b"".join([*corpus, *map(log_of, (*NAMES, "day"))]))
    return every


def test_every_alert_has_its_runbook_and_every_runbook_its_alert():
    """Whoever is woken by an alert finds what to do, and none is left of an alert that was taken out."""
    assert set(ALERT_RULES) == set(TEXTS)


@pytest.mark.parametrize("name", TEXTS)
def test_sections_are_there_in_order(name):
    """A runbook begins with its name and has the same five sections, none of them empty."""
    found = sections(TEXTS[name])

    assert TEXTS[name].startswith(f"# {name}\n")
    assert list(found) == HEADINGS
    assert all(found.values())


@each_runbook
def test_queries_name_series_and_labels_that_there_are(name):
    """A query over an invented series or label finds nothing, which looks like health."""
    for query in queries(name):
        found = selectors(promql.parse(query))
        assert found, query
        for selector in found:
            assert selector.name in SERIES or selector.name in EXPRESSIONS, query
            assert {matcher.name for matcher in selector.matchers.matchers} <= labels_of(selector.name), query
        known = set().union(*(labels_of(selector.name) for selector in found))
        assert set(named_labels(promql.parse(query))) <= known, query


@pytest.fixture(scope="module")
def overload():
    """A recorded overload's series, as the daemon shows them with an objective."""
    series, steps = replayed(RECORDINGS["day"], has_slo=True, has_log=True, has_metrics=True)
    return {**series, **of_the_daemon(steps)}


@pytest.mark.needs_tool("promtool")
def test_queries_answer_when_their_series_are_there(overload):
    """In a recorded overload each query whose every series is there has an answer: none joins what never matches."""
    asked = [query for name in TEXTS for query in queries(name) if not compares(promql.parse(query))]
    place = {"SERVER": "day", "ENGINE": "0"}
    filled = {re.sub("SERVER|ENGINE", lambda found: place[found[0]], query) for query in asked}
    parts = {query: {part.prettify() for part in selectors(promql.parse(query))} for query in filled}

    found = answered(set().union(filled, *parts.values()), overload, step=STEP, second=500)

    expected = {query for query in filled if parts[query] <= found}
    assert len(expected) > 75
    missing = expected - found
    assert not missing


@each_runbook
def test_searches_find_what_vllm_prints(name, logs):
    """Each pattern that is looked for in a log is in a log of some release, or its source is known."""
    for options, patterns in greps(TEXTS[name]):
        for pattern in patterns:
            run = subprocess.run(["grep", *options, "-m1", "-e", pattern, logs], capture_output=True, check=False)
            assert run.returncode == (1 if pattern in NOT_IN_THE_CORPUS else 0), pattern


@pytest.fixture(scope="module")
def snapshot():
    """What /api/v1/snapshot says of a recorded overload."""
    shown = next(snapshot for second, snapshot in snapshots("day") if second >= 500)
    return json.dumps({"servers": [{**server_view(shown), "name": "SERVER"}]})


@pytest.mark.needs_tool("jq")
@pytest.mark.parametrize("text", FILTERS)
def test_commands_on_the_snapshot_show_something(text, snapshot):
    """What a runbook picks out of /api/v1/snapshot is there."""
    run = subprocess.run(["jq", "-c", text], input=snapshot, capture_output=True, text=True, check=True)

    assert run.stdout.strip()
    assert not re.search(r":null|^null", run.stdout)


def test_the_table_lists_every_alert():
    """The table in alerts/README.md has each alert once, in the rules' order, with its severity, tier and runbook."""
    rows = _ROW.findall((ALERTS / "README.md").read_text(encoding="utf-8"))
    expected = [
        (name, f"runbooks/{name}.md", ", ".join(each["severity"] for each in labels), labels[0]["tier"])
        for name, labels in ((name, [rule["labels"] for rule in rules]) for name, rules in ALERT_RULES.items())
    ]

    assert expected == [row[:4] for row in rows if row[0] in ALERT_RULES]
    assert not {row[0] for row in rows} - set(ALERT_RULES)


def origins(name):
    """Return the names of the daemon's series that a rule's expression is made from."""
    found = set()
    for expr in [EXPRESSIONS[name]] if name in EXPRESSIONS else [rule["expr"] for rule in ALERT_RULES[name]]:
        for selector in selectors(promql.parse(expr)):
            if selector.name == name:  # It hands its own value on.
                continue
            found |= origins(selector.name) if selector.name in EXPRESSIONS else {selector.name}
    return found


def test_the_table_says_which_alerts_need_an_objective():
    """`slo` stands in the row of exactly those alerts whose rules use the configured objectives."""
    rows = {row[0]: row[4] for row in _ROW.findall((ALERTS / "README.md").read_text(encoding="utf-8"))}

    for name in ALERT_RULES:
        assert ("slo" in rows[name]) == any("_slo_" in series for series in origins(name)), name


def test_each_failure_of_a_log_has_the_runbook_of_its_alert():
    """What `once` names for a failure is the runbook of the worst alert on it, of equals the first, if any."""
    named: dict[str, str] = {}
    alerts = [rule for rule in RULES if "alert" in rule]
    for rule in sorted(alerts, key=lambda each: severity_rank(each["labels"]["severity"])):
        for events in re.findall(r'log_events_total\{event=~?"([a-z_|]+)"', rule["expr"]):
            for event in events.split("|"):
                named.setdefault(event, rule["alert"])

    assert named == FAILURE_RUNBOOKS
