# SPDX-License-Identifier: Apache-2.0
"""What a scrape of the daemon gets is byte for byte what prometheus_client would write."""

from __future__ import annotations

import math

import pytest

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest as write_text
from prometheus_client.openmetrics.exposition import generate_latest as write_openmetrics
from tests.support.exposition import Collected, LibraryFamilies, collected, exported, written
from tests.support.recordings import RECORDINGS, snapshots

from vllm_watch.daemon.exposition.sample_values import HistogramSample, PlainSample
from vllm_watch_parsers.scrape import Histogram


WRITERS = {False: write_text, True: write_openmetrics}
pytestmark = pytest.mark.slow

VALUES = [0, 1, -1, 0.1, 1e-9, 123456.5, 1234567, 12345678.9, 1e21, 1e300, math.inf, -math.inf, math.nan]
ODD = ["", 'quo"te', "back\\slash", "line\nbreak", "通义", 'all "of\\ \nit']
OWN = [PlainSample("build_info", ("1", "3"), 1, 0.0)]


class Fixed:
    """A collector of families that are what they are."""

    def __init__(self, *families):
        self._families = families

    def collect(self):
        """Return them."""
        return iter(self._families)


def by_library(collector, *, for_openmetrics=False):
    """Return what prometheus_client writes of a collector's families."""
    registry = CollectorRegistry()
    registry.register(collector)
    return WRITERS[for_openmetrics](registry)


@pytest.mark.parametrize("for_openmetrics", [False, True])
@pytest.mark.parametrize("name", sorted(RECORDINGS))
def test_recordings(name, for_openmetrics):
    """At every tenth second of every recording both write the same, the daemon's own samples among it."""
    for second, snapshot in snapshots(name, step=10.0):
        found = collected(snapshot, own=OWN)
        theirs = by_library(LibraryFamilies(found), for_openmetrics=for_openmetrics)

        assert theirs == exported(snapshot, own=OWN, for_openmetrics=for_openmetrics), second


@pytest.mark.parametrize("name", sorted(RECORDINGS))
def test_recordings_with_times(name):
    """With the time of each sample both write the same."""
    for second, snapshot in snapshots(name, step=60.0):
        found = collected(snapshot)

        assert by_library(LibraryFamilies(found, with_times=True)) == written(found, with_times=True), second


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

    assert by_library(LibraryFamilies(found), for_openmetrics=for_openmetrics) == ours
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

    assert by_library(LibraryFamilies(found), for_openmetrics=for_openmetrics) == ours
    assert ours.count(b"\n") == len(ODD) + len(VALUES) + 4 * len(ODD) + 6 + for_openmetrics


@pytest.mark.parametrize("for_openmetrics", [False, True])
@pytest.mark.parametrize("kind", ["gauge", "counter", "histogram"])
def test_odd_families_of_others(kind, for_openmetrics):
    """Families of the library's, with any help text, labels and values, are written as by the library."""
    family = Metric("some_family", 'a "help" of \\ two\nlines, Größe', kind)
    for number, value in enumerate(VALUES):
        name = {"counter": "some_family_total", "histogram": "some_family_bucket"}.get(kind, "some_family")
        labels = {"z": str(number), "le": "+Inf", **dict(zip("abcdef", ODD, strict=True))}
        family.add_sample(name, labels, value)
    family.add_sample("some_family_sum" if kind == "histogram" else "some_family", {}, 2)
    ours = written(Collected([]), [family], for_openmetrics=for_openmetrics)

    assert by_library(Fixed(family), for_openmetrics=for_openmetrics) == ours
    assert ours.count(b"\n") == len(VALUES) + 3 + for_openmetrics


@pytest.mark.parametrize("for_openmetrics", [False, True])
def test_the_process(for_openmetrics):
    """The process' own families are written as the library writes them."""
    families = list(ProcessCollector(registry=None).collect())
    ours = written(Collected([]), families, for_openmetrics=for_openmetrics)

    assert by_library(Fixed(*families), for_openmetrics=for_openmetrics) == ours
    assert b"process_cpu_seconds_total " in ours
