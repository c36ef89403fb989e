# SPDX-License-Identifier: Apache-2.0
"""Dashboards to push, a Grafana to push them to, and the command."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from tests.grafana.server import GrafanaStandIn
from tests.support.needs import without

from vllm_watch.cli import command_line as cli
from vllm_watch.cli.grafana import push


TITLES = {"vllm-watch-fleet": "vLLM fleet", "vllm-watch-server": "vLLM server", "vllm-watch-sources": "vLLM sources"}


def panel(number, title, **more):
    """Return a panel."""
    place = {"h": 8, "w": 12, "x": 0, "y": 8 * number}
    return {"id": number, "title": title, "type": "timeseries", "gridPos": place, **more}


def dashboard(uid="vllm-watch-fleet", **changes):
    """Return a small dashboard of ours."""
    return {
        "uid": uid,
        "title": TITLES[uid],
        "tags": ["vllm-watch"],
        "schemaVersion": 39,
        "panels": [panel(1, "Running"), panel(2, "Waiting")],
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus", "current": {}},
                {"name": "server", "type": "query", "query": "label_values(server)"},
            ]
        },
        **changes,
    }


class Ended(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str

    def lines(self, word):
        """Return the lines of the report that begin with a word."""
        return [line for line in self.out.splitlines() if line.startswith(word)]


class Command:
    """``vllm-watch grafana`` with the dashboards that a test says."""

    def __init__(self, folder, capsys):
        self.dashboards = [dashboard(uid) for uid in TITLES]
        self._folder = folder
        self._capsys = capsys
        self._token = self.token("glsa_editor\n")

    def token(self, text):
        """Return a file with this token."""
        path = self._folder / f"token-{len(list(self._folder.iterdir()))}"
        path.write_text(text)
        return path

    def __call__(self, action, url, *arguments, token=None):
        """Run the command to its end."""
        where = ["--url", url, "--token-file", str(token or self._token)]
        with pytest.raises(SystemExit) as ended:
            cli.main(["grafana", action, *where, *map(str, arguments)])
        return Ended(ended.value.code, *self._capsys.readouterr())


@pytest.fixture
def command(tmp_path, capsys, monkeypatch):
    """The command, which takes its dashboards from the test."""
    pytest.importorskip("grafana_client", reason=without("grafana_client"))
    made = Command(tmp_path, capsys)
    monkeypatch.setattr(push, "packaged", lambda _language: made.dashboards)
    return made


@pytest.fixture
def grafana():
    """A Grafana with two Prometheuses and nothing of ours."""
    with GrafanaStandIn() as server:
        yield server
