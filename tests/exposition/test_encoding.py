# SPDX-License-Identifier: Apache-2.0
"""The daemon's page is byte for byte what prometheus_client would write."""

from __future__ import annotations

import math

import pytest

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest as write_text
from prometheus_client.openmetrics.exposition import generate_latest as write_openmetrics
from tests.support.recordings import RECORDINGS, snapshots

from vllm_watch.exposition.families import SnapshotCollector
from vllm_watch.exposition.samples import PlainSample
from vllm_watch.exposition.text_format import encode


pytestmark = pytest.mark.slow


WRITERS = {False: write_text, True: write_openmetrics}
VALUES = [0, 1, -1, 0.1, 1e-9, 123456.5, 1234567, 12345678.9, 1e21, 1e300, math.inf, -math.inf, math.nan]


class Fixed:
    """A collector of families that are what they are."""

    def __init__(self, *families):
        self._families = families

    def collect(self):
        """Return them."""
        return iter(self._families)


def both(collectors, *, for_openmetrics):
    """Return what we write of the collectors and what prometheus_client does."""
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    return encode(registry.collect(), for_openmetrics=for_openmetrics), WRITERS[for_openmetrics](registry)


@pytest.mark.parametrize("for_openmetrics", [False, True])
@pytest.mark.parametrize("name", sorted(RECORDINGS))
def test_recordings(name, for_openmetrics):
    """At every tenth second of every recording the pages are equal, the daemon's own samples among them."""
    own = [PlainSample("build_info", ("1", "3"), 1, 0.0)]
    for second, snapshot in snapshots(name, step=10.0):
        collector = SnapshotCollector(lambda taken=snapshot: [taken], lambda: own)
        ours, theirs = both([collector], for_openmetrics=for_openmetrics)

        assert ours == theirs, second


@pytest.mark.parametrize("for_openmetrics", [False, True])
@pytest.mark.parametrize("kind", ["gauge", "counter", "histogram"])
def test_odd_texts_and_values(kind, for_openmetrics):
    """Whatever a label's value or a help text holds, and whatever a value is, it is written as by the library."""
    family = Metric("some_family", 'a "help" of \\ two\nlines, Größe', kind)
    for number, value in enumerate(VALUES):
        name = {"counter": "some_family_total", "histogram": "some_family_bucket"}.get(kind, "some_family")
        labels = {
            "z": str(number),
            "le": "+Inf",
            "a": 'quo"te',
            "b": "back\\slash",
            "c": "line\nbreak",
            "d": "通义",
            "e": "",
        }
        family.add_sample(name, labels, value)
    family.add_sample("some_family_sum" if kind == "histogram" else "some_family", {}, 2)
    ours, theirs = both([Fixed(family)], for_openmetrics=for_openmetrics)

    assert ours == theirs
    assert ours.count(b"\n") == len(VALUES) + 3 + for_openmetrics


@pytest.mark.parametrize("for_openmetrics", [False, True])
def test_the_process(for_openmetrics):
    """The process' own families are written as the library writes them."""
    collector = ProcessCollector(registry=None)
    families = list(collector.collect())
    ours, theirs = both([Fixed(*families)], for_openmetrics=for_openmetrics)

    assert ours == theirs
    assert b"process_cpu_seconds_total " in ours
