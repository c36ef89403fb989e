# SPDX-License-Identifier: Apache-2.0
"""The summary of a server for a person: what `once` prints on a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.gpus import HOT, advised, eight, gpu, lost, unread, used
from tests.support.recordings import snapshots

from vllm_watch.analysis.rendering.server_summary import summary_text
from vllm_watch.analysis.replay.replay import LogPeriod
from vllm_watch.daemon.state.snapshot import SourceSnapshot


GOLDEN = Path(__file__).parents[1] / "golden"


def at_second(name, second):
    """Return what is known at a second of a recording."""
    return next(snapshot for moment, snapshot in snapshots(name, step=10.0) if moment >= second)


def text_of(snapshot, **changes):
    """Return the summary of a snapshot whose log began a minute before."""
    changed = snapshot._replace(**changes)
    return summary_text(changed, LogPeriod(changed.at - 60, changed.at))


@pytest.mark.parametrize(("name", "second"), [("day", 250), ("stall", 130), ("dp1", 90)])
def test_summaries_are_as_they_were(name, second, request):
    """The summary at a chosen second of a recording is, to the letter, the one that was looked at and kept."""
    kept = GOLDEN / f"{name}-{second}.summary.txt"
    found = text_of(at_second(name, second))
    if request.config.getoption("--update-golden"):
        kept.write_text(found, encoding="utf-8")

    assert kept.read_text(encoding="utf-8") == found
    assert max(map(len, found.splitlines())) <= 80


def test_what_is_not_known_is_not_zero():
    """Without a source there is no number, only the state and why the source cannot be read."""
    snapshot = at_second("dp1", 90)
    (first, *_) = snapshot.engines
    nothing = first._replace(
        state="unknown", gauges={}, facts={}, position_acceptance=(),
        totals=first.totals._replace(counters={}, requests_finished={}, histograms={}),
    )  # fmt: skip
    found = summary_text(
        snapshot._replace(
            engines=(nothing,), former=(), version=None, model_name="", http_requests={}, starts=0, log=None, tail=None,
            sources=(SourceSnapshot("metrics", is_up=False, reason="refused", last_reading=None),),
        ),
        None,
    )  # fmt: skip

    assert found.startswith("dp1: unknown\nRead at 20")
    assert "warning  /metrics: Nothing listens at this address" in found
    assert "Log: not configured. Capacity, limits, failures and restarts come from it." in " ".join(found.split())
    assert "tokens/s" not in found
    assert "Counted" not in found


def test_gpus_are_as_they_were(request):
    """Each GPU has a row with what is known of it, and what is wrong with it is said, as it was looked at and kept."""
    kept = GOLDEN / "gpus.summary.txt"
    some = eight(gpu3=lost(3), gpu4=used(gpu(4), HOT, other=3 * 2**30), gpu5=advised(5, "reboot"), gpu6=unread(6))
    snapshot = at_second("dp1", 90)
    sources = (*snapshot.sources, SourceSnapshot("gpu", True, "ok", snapshot.at))
    found = text_of(snapshot, gpus=some, sources=sources)
    if request.config.getoption("--update-golden"):
        kept.write_text(found, encoding="utf-8")

    assert kept.read_text(encoding="utf-8") == found
    assert max(map(len, found.splitlines())) <= 80
