# SPDX-License-Identifier: Apache-2.0
"""What is kept from one scrape of the daemon to the next is never seen in what is written."""

from __future__ import annotations

import pytest

from tests.support.recordings import RECORDINGS, snapshots

from vllm_watch.daemon.catalog.series import SERIES
from vllm_watch.daemon.exposition import line_starts
from vllm_watch.daemon.exposition.collector import TextCollector
from vllm_watch.daemon.exposition.samples import server_samples
from vllm_watch.daemon.exposition.text_format import SampleWriter, prometheus_text


def fail(_server, error):
    """Let no server be left out."""
    raise error


def text(collector, servers):
    """Return what a collector writes of these servers."""
    return b"".join(prometheus_text(collector.texts(servers, list, failed=fail)))


@pytest.mark.slow
@pytest.mark.parametrize("step", [1.0, 5.0])
@pytest.mark.parametrize("name", sorted(RECORDINGS))
def test_one_collector_writes_what_new_ones_do(name, step):
    """Between two scrapes and after each, with another server beside it that is some time behind."""
    collector, before = TextCollector(), None
    for second, server in snapshots(name, step=step)[:150]:
        servers = [server, *([] if before is None else [before._replace(name="behind")])]
        before = server

        assert text(TextCollector(), servers) == text(collector, servers), second


def test_other_labels_and_servers():
    """Servers that come and go, and labels that a reload changes, are written as they are now."""
    _, server = snapshots("day", step=60.0)[4]
    one, other = server._replace(name="a", labels={"team": "x"}), server._replace(name="b")
    collector = TextCollector()
    for servers in ([one], [one, other], [other], [one._replace(labels={"team": "y"}), other], [one], []):
        assert text(TextCollector(), servers) == text(collector, servers)
    assert b'team="x"' in text(collector, [one])


def test_what_is_kept_has_a_limit(monkeypatch):
    """However many models come and go, a limited number of lines' starts is kept, and all lines are as they should."""
    monkeypatch.setattr(line_starts, "MAX_KEPT", 500)
    samples = [
        sample._replace(labels=(sample.labels[0], f"model {number}", *sample.labels[2:]))
        for number in range(20)
        for sample in server_samples(snapshots("day", step=60.0)[4][1])
        if SERIES[sample.name].labels[1:2] == ("model_name",)
    ]
    writer = SampleWriter()
    of_each = [writer.write(samples[start : start + 50]) for start in range(0, len(samples), 50)]
    (starts,) = writer._starts.values()

    assert len(samples) > 2000
    assert len(starts.known) <= 500
    assert of_each == [SampleWriter().write(samples[start : start + 50]) for start in range(0, len(samples), 50)]


def test_a_server_that_fails_hides_no_other_and_comes_back():
    """Nothing of it is written while it fails, and everything once it does not."""
    _, server = snapshots("day", step=60.0)[4]
    bad = server._replace(name="bad", sources=None)
    collector, failed = TextCollector(), []
    texts = collector.texts([bad, server], list, failed=lambda name, _error: failed.append(name))

    assert ["bad"] == failed
    assert text(TextCollector(), [server]) == b"".join(prometheus_text(texts))
    both = [server._replace(name="bad"), server]
    assert text(TextCollector(), both) == text(collector, both)
