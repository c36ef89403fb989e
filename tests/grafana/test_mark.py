# SPDX-License-Identifier: Apache-2.0
"""A load test is one region in Grafana, which replaces that of its run before it; what is lacking is said."""

from __future__ import annotations

import re

from contextlib import closing

import pytest

from tests.grafana.server import EDITOR, GrafanaStandIn, page
from tests.support.needs import without

from vllm_watch.analysis.loadtest.region import Region, path
from vllm_watch.cli.commands.grafana import Connection, connect, mark_region
from vllm_watch.daemon.support.errors import GrafanaError, RejectedError


pytest.importorskip("grafana_client", reason=without("grafana_client"))

REGION = Region(1_795_183_200.0, 1_795_183_800.0, "max-num-seqs 256", "one", "qwen", ("tuning",))


@pytest.fixture
def mark(tmp_path):
    """Return a function that marks a region with a token."""

    def do(grafana, region=REGION, token="glsa_editor"):
        (tmp_path / "token").write_text(token)
        with closing(connect(Connection(grafana.url, str(tmp_path / "token")))) as server:
            return mark_region(server, region)

    return do


def texts(grafana):
    """Return the texts of the annotations, without their links."""
    return [each["text"].partition("<br>")[0] for each in grafana.annotations.values()]


def test_a_region_of_the_organization_with_its_tags(mark, grafana):
    """One annotation with both ends is written, of no dashboard, tagged with server and run, and found by its tags."""
    address = "/d/vllm-watch-load-test?from=1795183200000&to=1795183820000&var-server=qwen"

    assert ("marked", path(REGION)) == (mark(grafana), address)
    (found,) = grafana.annotations.values()
    assert (found["time"], found["timeEnd"]) == (1_795_183_200_000, 1_795_183_800_000)
    assert found["text"] == f'max-num-seqs 256<br><a href="{address.replace("&", "&amp;")}">Load test</a>'
    assert set(found["tags"]) == {"vllm-watch", "loadtest", "server:qwen", "run:one", "tuning"}
    assert [path for method, path in grafana.writes] == ["/api/annotations"]
    assert all(re.fullmatch(r"[\w/.:?&=-]+", path) for _, path in grafana.requests)


def test_a_second_mark_of_a_run_replaces_the_first(mark, grafana):
    """There is one region of a run: the last; those of other runs stay, and the same mark again changes nothing."""
    grafana.annotations[7] = {"id": 7, "time": 1, "timeEnd": 2, "text": "mine", "tags": ["vllm-watch", "run:two"]}
    mark(grafana, REGION._replace(tags=("b", "a", "b")))

    assert "replaced" == mark(grafana)
    assert texts(grafana) == ["mine", "max-num-seqs 256"]
    before = list(grafana.writes)
    assert "unchanged" == mark(grafana)
    assert before == grafana.writes


def test_too_many_regions_of_a_run_are_one_again(mark, grafana):
    """What an interrupted mark left behind goes with the next one, be it the same."""
    mark(grafana)
    grafana.annotations[9] = {**grafana.annotations[1], "id": 9}

    assert "replaced" == mark(grafana)
    assert len(grafana.annotations) == 1


def test_a_region_is_there_whatever_fails_in_between(mark, grafana):
    """The old region is deleted only once the new one is written."""
    mark(grafana)
    grafana.instead["POST", "/api/annotations"] = page(500, b'{"message": "no"}', Content_Type="application/json")

    with pytest.raises(GrafanaError, match=r"cannot create an annotation \(500: no\)"):
        mark(grafana, REGION._replace(text="new"))
    assert texts(grafana) == ["max-num-seqs 256"]


def test_text_is_no_markup(mark, grafana):
    """A text with angle brackets is shown as it is."""
    mark(grafana, REGION._replace(text="<script>alert(1)</script>"))

    assert texts(grafana) == ["&lt;script&gt;alert(1)&lt;/script&gt;"]


def test_a_grafana_below_a_path_has_links_below_it(mark):
    """The link in the text leads below the path that Grafana is served at."""
    with GrafanaStandIn(prefix="/grafana") as grafana:
        mark(grafana)
        (found,) = grafana.annotations.values()

    assert 'href="/grafana/d/vllm-watch-load-test?' in found["text"]


@pytest.mark.parametrize(
    ("lacking", "doing"),
    [
        ("annotations:read", "read annotations"),
        ("annotations:create", "create an annotation"),
        ("annotations:create:organization", "create an annotation"),
        ("annotations:delete", "delete an annotation"),
    ],
)
def test_a_right_that_is_missing_is_said(mark, grafana, lacking, doing):
    """A token that may do too little is told what it may not, also where Grafana only says that access is denied."""
    mark(grafana)
    grafana.tokens["glsa_less"] = ("sa-less", EDITOR - {lacking})

    with pytest.raises(RejectedError, match=rf"the token may not {doing} \(403\): give its service account the role"):
        mark(grafana, REGION._replace(text="t"), "glsa_less")
