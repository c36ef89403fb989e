# SPDX-License-Identifier: Apache-2.0
"""``grafana delete`` takes away what a push made, and nothing else."""

from __future__ import annotations

import pytest

from tests.grafana.conftest import TITLES
from tests.grafana.server import MIDDLE, NEWEST, OLD, GrafanaStandIn


@pytest.fixture
def pushed(command, grafana):
    """A Grafana with everything pushed."""
    command("push", grafana.url)
    grafana.requests.clear()
    return grafana


@pytest.mark.parametrize("release", [OLD, MIDDLE, NEWEST], ids=lambda release: release.name)
def test_everything(command, release):
    """All dashboards that a push made go; a second time there is nothing to do."""
    with GrafanaStandIn(release) as grafana:
        command("push", grafana.url)
        ended = command("delete", grafana.url)
        again = command("delete", grafana.url)

        assert (0, 0) == (ended.status, again.status)
        assert len(TITLES) == len(ended.lines("deleted"))
        assert {} == grafana.dashboards
        assert len(TITLES) == len(again.lines("absent"))


def test_others_stay(command, pushed):
    """What another made and what files make stays, with the reason."""
    pushed.edit("vllm-watch-server", tags=[])
    pushed.dashboards["vllm-watch-sources"].file = "sources.json"
    ended = command("delete", pushed.url)

    assert 1 == ended.status
    reasons = [line.partition("): ")[2] for line in ended.lines("refused")]
    assert reasons == [
        "vllm-watch did not make it: it lacks the tag vllm-watch; push --force takes it for ours",
        "Grafana makes it from the file sources.json: change or remove it there",
    ]
    assert {"vllm-watch-server", "vllm-watch-sources"} == set(pushed.dashboards)


def test_a_token_that_may_not(command, pushed):
    """A token without the permission deletes nothing, and is told what it lacks, for each dashboard."""
    pushed.tokens["glsa_less"] = ("sa", pushed.tokens["glsa_editor"][1] - {"dashboards:delete"})
    ended = command("delete", pushed.url, token=command.token("glsa_less"))

    assert 1 == ended.status
    assert 3 == len(ended.lines("failed"))
    assert "the permission dashboards:delete" in ended.out
    assert 3 == len(pushed.dashboards)
