# SPDX-License-Identifier: Apache-2.0
"""
What a scrape of the daemon gets is byte for byte what prometheus_client would write. A value that cannot be written
hides no other server.
"""

from __future__ import annotations

import math

import pytest

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest as write_text
from prometheus_client.openmetrics.exposition import generate_latest as write_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from tests.support.exposition import Collected, LibraryFamilies, collected, exported, written
from tests.support.pages import ScrapedServer, page
from tests.support.recordings import RECORDINGS, snapshots

from vllm_watch.daemon.exposition.samples import HistogramSample, PlainSample
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch_parsers.flags import CommandFacts
from vllm_watch_parsers.scrape import Histogram


WRITERS = {False: write_text, True: write_openmetrics}

VALUES = [0, 1, -1, 0.1, 1e-9, 123456.5, 1234567, 12345678.9, 1e21, 1e300, math.inf, -math.inf, math.nan]
ODD = ["", 'quo"te', "back\\slash", "line\nbreak", "通义", 'all "of\\ \nit']
OWN = [PlainSample("build_info", ("1", "3"), 1, 0.0)]


def by_library(collected, *, for_openmetrics=False, with_times=False):
    """Return what prometheus_client writes of samples."""
    registry = CollectorRegistry()
    registry.register(LibraryFamilies(collected, with_times=with_times))
    return WRITERS[for_openmetrics](registry)


@pytest.mark.slow
@pytest.mark.parametrize("for_openmetrics", [False, True])
@pytest.mark.parametrize("name", sorted(RECORDINGS))
def test_recordings(name, for_openmetrics):
    """At every tenth second of every recording both write the same, the daemon's own samples among it."""
    for second, snapshot in snapshots(name, step=10.0):
        found = collected(snapshot, own=OWN)
        theirs = by_library(found, for_openmetrics=for_openmetrics)

        assert theirs == exported(snapshot, own=OWN, for_openmetrics=for_openmetrics), second


@pytest.mark.parametrize("for_openmetrics", [False, True])
def test_configured_labels(for_openmetrics):
    """Labels of several servers, before and behind a bucket's bound in the order of names, are written the same."""
    snapshot = max((each for _, each in snapshots("day", step=60.0)), key=lambda each: len(each.engines[0].histograms))
    servers = (
        snapshot._replace(name="a", labels={"zone": 'x"y', "area": "1"}),
        snapshot._replace(name="b", labels={"len": "\\"}),
        snapshot._replace(name="c"),
    )
    own = [*OWN, *(PlainSample("collect_errors_total", (server.name,), 1, 0.0) for server in servers)]
    found = collected(*servers, own=own)
    ours = exported(*servers, own=own, for_openmetrics=for_openmetrics)

    assert by_library(found, for_openmetrics=for_openmetrics) == ours
    assert b'area="1",engine="0",le="' in ours
    assert b',len="",' in ours


@pytest.mark.parametrize("for_openmetrics", [False, True])
def test_odd_texts_and_values(for_openmetrics):
    """Whatever a label's value holds, and whatever a value is, it is written as by the library."""
    histogram = Histogram((0.5, math.inf), (1.0, 2.0), math.inf)
    found = Collected(
        [
            *(PlainSample("requests_running", ("s", odd, str(n)), n, 0.0) for n, odd in enumerate(ODD)),
            *(PlainSample("log_lines_total", (str(n),), value, 0.0) for n, value in enumerate(VALUES)),
            *(HistogramSample("queue_time_seconds", ("s", odd, "0"), histogram, 0.0) for odd in ODD),
        ],
        {"s": {"odd": ODD[-1]}},
    )
    ours = written(found, for_openmetrics=for_openmetrics)

    assert by_library(found, for_openmetrics=for_openmetrics) == ours
    assert ours.count(b"\n") == len(ODD) + len(VALUES) + 4 * len(ODD) + 6 + for_openmetrics


def shown(*snapshots):
    """Return the servers on the page, and those that could not be shown."""
    failed = []
    body = exported(*snapshots, failed=lambda name, _error: failed.append(name)).decode()
    samples = [sample for family in parse_text(body) for sample in family.samples]
    return {sample.labels["server"] for sample in samples}, failed


@pytest.mark.parametrize("version", [5, ("0.10",), b"0.10"])
def test_one_bad_value_costs_one_server(version):
    """What is no text where a label should be is told of one server, and the other is on the page."""
    good = ScrapedServer().scrape(page(running=1))
    bad = good._replace(name="bad", version=version)

    assert shown(good, bad) == ({"s"}, ["bad"])


def test_a_lone_surrogate_costs_a_letter():
    """Bytes that are no UTF-8, wherever they came from, are shown as a question mark."""
    state = ServerState(ServerSettings("s", False, 5.0, command=CommandFacts(model_name="caf\udce9")))

    assert shown(state.snapshot(1.0)) == ({"s"}, [])
