# SPDX-License-Identifier: Apache-2.0
"""A recorded prefill server and its decode server: each half is told for what it is."""

from __future__ import annotations

import pytest

from tests.support.recordings import snapshots, states


ENDS = {name: snapshots(name, step=10.0)[-1][1] for name in ("prefill", "decode")}


def mean(name, histogram):
    """Return the mean of a histogram at a recording's end."""
    of_engine = ENDS[name].engines[0].histograms[histogram].histogram
    return of_engine.sum / of_engine.observations


def test_roles_are_those_of_the_arguments():
    """One computes prompts, the other generates."""
    assert {name: snapshot.role for name, snapshot in ENDS.items()} == {"prefill": "prefill", "decode": "decode"}


def test_the_first_token_of_a_pair_takes_both_halves():
    """A client waits for the whole request on the one server, and for the first token on the other."""
    assert mean("prefill", "e2e_request_latency_seconds") == pytest.approx(0.511, abs=0.001)
    assert mean("decode", "time_to_first_token_seconds") == pytest.approx(0.288, abs=0.001)


def test_prompt_tokens_are_computed_once_and_fetched():
    """What one server computes the other fetches, but for the part of each prompt that its connector leaves out."""
    tokens = {
        name: {source: reading.value for source, reading in end.engines[0].totals.prompt_tokens.items()}
        for name, end in ENDS.items()
    }

    assert tokens["prefill"] == {"local_compute": 7808, "local_cache_hit": 0, "external_kv_transfer": 0}
    assert tokens["decode"] == {"local_compute": 2560, "local_cache_hit": 0, "external_kv_transfer": 5248}


def test_neither_half_looks_stalled():
    """A server that generates one token for each prompt, and one that computes few, serve or are idle."""
    seen = {state for name in ENDS for state in states(name, step=5.0).values()}

    assert seen <= {"serving", "idle", "unknown", "starting"}
    assert seen >= {"serving", "idle"}


def test_requests_that_fetch_are_known_of_the_reader_alone():
    """The stages are on the page of the server that reads, each with a number."""
    stages = {
        name: {key.labels[0]: reading.value for key, reading in end.engines[0].kv.items()} for name, end in ENDS.items()
    }

    assert stages["prefill"] == {}
    assert stages["decode"] == {"waiting_to_start": 0, "in_progress": 0, "completed_waiting": 0}
