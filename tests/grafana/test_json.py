# SPDX-License-Identifier: Apache-2.0
"""``grafana push`` and ``delete`` for programs: what was done, as one document."""

from __future__ import annotations

import json

from tests.grafana.conftest import TITLES
from tests.grafana.server import page


JSON = ("--format", "json")
SAVE = ("POST", "/api/dashboards/db")


def results_of(grafana, result, titles=TITLES):
    """Return what is said of dashboards that all had the same result."""
    return [
        {"dashboard": title, "uid": uid, "url": f"{grafana.url}/d/{uid}", "result": result}
        for uid, title in titles.items()
    ]


def test_a_push(command, grafana):
    """It names Grafana, the folder and each dashboard with its result."""
    ended = command("push", grafana.url, *JSON)
    found = json.loads(ended.out)
    instance, folder, *dashboards = found["results"]

    assert (0, "", True) == (ended.status, ended.err, found["ok"])
    assert {"grafana": grafana.url, "version": grafana.release.name} == instance
    assert {"folder": "vLLM", "result": "created"} == folder
    assert results_of(grafana, "created") == dashboards


def test_a_push_that_fails_half_way(command, grafana):
    """The document has what was done and what was not; the error is on standard error."""
    grafana.instead[SAVE] = page(502, b"<html>")
    ended = command("push", grafana.url, *JSON)
    found = json.loads(ended.out)

    assert (1, False) == (ended.status, found["ok"])
    assert results_of(grafana, "not done") == found["results"][2:]
    assert "does not answer as Grafana does" in ended.err


def test_a_delete(command, grafana):
    """It says what became of each dashboard, and why one was left."""
    command("push", grafana.url)
    (uid, title), *others = TITLES.items()
    grafana.edit(uid, tags=[])
    ended = command("delete", grafana.url, *JSON)
    found = json.loads(ended.out)
    _, left, *deleted = found["results"]

    assert (1, False) == (ended.status, found["ok"])
    assert (title, "refused") == (left["dashboard"], left["result"])
    assert left["why"].endswith("push --force takes it for ours")
    assert results_of(grafana, "deleted", dict(others)) == deleted
