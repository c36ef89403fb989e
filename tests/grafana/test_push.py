# SPDX-License-Identifier: Apache-2.0
"""``grafana push`` against a server that enforces Grafana's API: what is done, what is left, and what is said."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest

from tests.grafana.conftest import TITLES, dashboard, panel
from tests.grafana.server import MIDDLE, NEWEST, OLD, GrafanaStandIn
from tests.support.waiting import SECONDS


FLEET = "vllm-watch-fleet"
SERVER = "vllm-watch-server"
SAVE = ("POST", "/api/dashboards/db")


@pytest.fixture(params=[OLD, MIDDLE, NEWEST], ids=lambda release: release.name)
def any_grafana(request):
    """A Grafana of each kind."""
    with GrafanaStandIn(request.param) as server:
        yield server


class TestEveryRelease:
    """What a push is for works with all that Grafana has been and is."""

    @pytest.mark.parametrize("token", ["glsa_editor", "glsa_admin"])
    def test_created(self, command, any_grafana, token):
        """All dashboards are created in a folder of their own."""
        ended = command("push", any_grafana.url, token=command.token(token))

        assert (0, "") == (ended.status, ended.err)
        assert [f"Grafana {any_grafana.release.name} at {any_grafana.url}"] == ended.lines("Grafana")
        assert ["folder vLLM: created"] == ended.lines("folder")
        assert [f"created: {title} ({any_grafana.url}/d/{uid})" for uid, title in TITLES.items()] == ended.lines(
            "created"
        )
        assert {"vllm-watch": "vLLM"} == any_grafana.folders
        assert {"vllm-watch"} == {kept.folder for kept in any_grafana.dashboards.values()}

    def test_idempotent(self, command, any_grafana):
        """A second push writes nothing."""
        command("push", any_grafana.url)
        before = list(any_grafana.writes)
        ended = command("push", any_grafana.url)

        assert 0 == ended.status
        assert len(TITLES) == len(ended.lines("unchanged"))
        assert before == any_grafana.writes

    def test_updated(self, command, any_grafana):
        """A new state of a dashboard is pushed over the old one, also over what somebody changed in it."""
        command("push", any_grafana.url)
        any_grafana.edit(FLEET, title="Mine")
        command.dashboards[0] = dashboard(panels=[panel(1, "Running"), panel(2, "Queue", unit="short")])
        ended = command("push", any_grafana.url)

        assert 0 == ended.status
        assert [f"updated: vLLM fleet ({any_grafana.url}/d/{FLEET})"] == ended.lines("updated")
        assert 2 == len(ended.lines("unchanged"))
        assert ("vLLM fleet", 3) == (
            any_grafana.dashboards[FLEET].model["title"],
            any_grafana.dashboards[FLEET].version,
        )
        assert 0 == len(command("push", any_grafana.url).lines("updated"))

    def test_a_conflict(self, command, any_grafana):
        """What somebody saves between reading and writing is not overwritten; the other dashboards are pushed."""
        command("push", any_grafana.url)
        command.dashboards[:2] = [dashboard(panels=[]), dashboard(SERVER, panels=[])]
        any_grafana.before[SAVE] = lambda: any_grafana.edit(FLEET, title="Mine")
        ended = command("push", any_grafana.url)

        assert 1 == ended.status
        status = any_grafana.release.stale[0]
        why = (
            f"cannot save the dashboard ({status}): somebody changed it meanwhile; nothing was overwritten: push again"
        )
        assert [f"failed: vLLM fleet ({any_grafana.url}/d/{FLEET}): {why}"] == ended.lines("failed")
        assert "Mine" == any_grafana.dashboards[FLEET].model["title"]
        assert 1 == len(ended.lines("updated"))

    def test_a_folder_that_the_token_may_not_see(self, command, any_grafana):
        """A folder that is there but hidden from the token is told from one that is missing."""
        any_grafana.folders["vllm-watch"] = "Hidden"
        any_grafana.tokens["glsa_blind"] = ("sa-blind", any_grafana.tokens["glsa_editor"][1] - {"folders:read"})
        ended = command("push", any_grafana.url, token=command.token("glsa_blind"))

        assert 1 == ended.status
        assert "vllm-watch: the folder vllm-watch exists, and the token may not see it" in ended.err
        assert {} == any_grafana.dashboards


class TestWhoseItIs:
    """What a push did not make stays as it is."""

    def test_anothers(self, command, grafana):
        """A dashboard of our uid that lacks our tag is another's: it is refused, and with force overwritten there."""
        grafana.folders["team"] = "Team"
        grafana.add(dashboard(panels=[], tags=["prod"]), folder="team")
        refused = command("push", grafana.url)

        assert 1 == refused.status
        assert "it lacks the tag vllm-watch; push --force takes it for ours" in refused.lines("refused")[0]
        assert 1 == grafana.dashboards[FLEET].version
        assert 0 == command("push", grafana.url, "--force").status
        assert ("team", 2) == (grafana.dashboards[FLEET].folder, len(grafana.dashboards[FLEET].model["panels"]))

    def test_imported_by_hand(self, command, grafana):
        """What somebody imported by hand and is equal is left alone."""
        grafana.add(dict(dashboard()))

        assert [f"unchanged: vLLM fleet ({grafana.url}/d/{FLEET})"] == command("push", grafana.url).lines("unchanged")

    @pytest.mark.parametrize("force", [[], ["--force"]])
    def test_provisioned(self, command, grafana, force):
        """What Grafana makes from files is refused with the file's name, also with force."""
        grafana.add(dashboard(panels=[]), file="vllm/fleet.json")
        ended = command("push", grafana.url, *force)

        assert 1 == ended.status
        why = "Grafana makes it from the file vllm/fleet.json: change or remove it there"
        assert [f"refused: vLLM fleet ({grafana.url}/d/{FLEET}): {why}"] == ended.lines("refused")

    def test_moved(self, command, grafana):
        """A dashboard that somebody moved is updated where it is now; its new folder is no edit."""
        command("push", grafana.url)
        grafana.folders["team"] = "Team"
        grafana.dashboards[FLEET].folder = "team"
        command.dashboards[0] = dashboard(panels=[])
        ended = command("push", grafana.url)

        assert 0 == ended.status
        assert "team" == grafana.dashboards[FLEET].folder
        assert 1 == len(ended.lines("updated"))


class TestOptions:
    """What can be told to a push."""

    def test_a_folder_that_is_there(self, command, grafana):
        """Our folder is found by its uid and keeps its title."""
        grafana.folders["vllm-watch"] = "Inference"

        assert ["folder Inference: found"] == command("push", grafana.url, "--folder", "GPUs").lines("folder")

    @pytest.mark.parametrize("name", ["Mimir", "mimir1"])
    def test_a_data_source(self, command, grafana, name):
        """The dashboards open with the data source that was named, by name or uid; again is idempotent."""
        ended = command("push", grafana.url, "--datasource", name)
        model = grafana.dashboards[FLEET].model

        assert "mimir1" == model["templating"]["list"][0]["current"]["value"]
        assert 0 == ended.status
        assert 3 == len(command("push", grafana.url, "--datasource", "Mimir").lines("unchanged"))

    def test_no_such_data_source(self, command, grafana):
        """A data source that is none, or of another type, is an error that names those there are."""
        ended = command("push", grafana.url, "--datasource", "Loki")

        names = "Mimir (mimir1), Prometheus (PBFA97CFB590B2093)"
        assert (1, f"vllm-watch: no data source of type Prometheus has the uid or name Loki; there are: {names}\n") == (
            ended.status,
            ended.err,
        )
        assert [] == grafana.writes

    def test_below_a_path(self, command):
        """A Grafana below a path is found there, with a slash at the end of its URL or not."""
        with GrafanaStandIn(prefix="/grafana") as server:
            for url in (server.url, f"{server.url}/"):
                ended = command("push", url)
                assert 0 == ended.status
                assert f"({server.url}/d/{FLEET})" in ended.out
            assert set(TITLES) == set(server.dashboards)

    def test_the_token_from_standard_input_and_the_environment(self, command, grafana, monkeypatch):
        """The token may come by standard input, and the options by the environment."""
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"glsa_editor\n")))
        assert 0 == command("push", grafana.url, token="-").status
        command_line = [sys.executable, "-m", "vllm_watch", "grafana", "delete", "--help"]
        told = subprocess.run(command_line, capture_output=True, text=True, check=True, timeout=SECONDS).stdout
        assert "GRAFANA_TOKEN_FILE" in told
        assert "GRAFANA_URL" in told

    def test_a_name_that_cannot_be_looked_up(self, command, grafana):
        """A data source that is asked for by name is not guessed where the token may not list them."""
        grafana.tokens["glsa_less"] = ("sa", grafana.tokens["glsa_editor"][1] - {"datasources:read"})
        ended = command("push", grafana.url, "--datasource", "Mimir", token=command.token("glsa_less"))

        assert 1 == ended.status
        assert "the token may not list data sources (403)" in ended.err
        assert [] == grafana.writes
