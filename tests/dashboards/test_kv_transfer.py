# SPDX-License-Identifier: Apache-2.0
"""What the dashboard of KV transfers tells of pairs of servers and of what goes wrong between them."""

from __future__ import annotations

import pytest

from tests.dashboards.replayed import Query, given_together


pytestmark = pytest.mark.needs_tool("promtool")

UID = "vllm-watch-kv-transfer"
STEPS = 60
SECONDS = 5
TOGETHER = "{{model_name}} {{pair}} both together, over 5 min"
TABLE, FIRST, SKIPPED = "Servers that move KV blocks", "Time to first token of a pair", "Not stored, share by reason"


def labels(server, **more):
    """Return a series' labels."""
    named = {"instance": "a:1", "job": "vllm-watch", "server": server, "model_name": "m", **more}
    return "{" + ",".join(f'{name}="{value}"' for name, value in named.items()) + "}"


def growing(each):
    """Return a counter's values, which grow by so much at each step."""
    return [repr(float(each * step)) for step in range(STEPS)]


def of(server, role):
    """Return what a server with a role shows of itself."""
    return {
        f"vllm_watch_server_info{labels(server, version='0.32.0', engine_generation='V1', pd_role=role)}": ["1"]
        * STEPS,
        f"vllm_watch_engine_state{labels(server, engine='0', state='serving')}": ["1"] * STEPS,
    }


def observed(server, histogram, total, count):
    """Return a histogram that grows by a total and a count at each step."""
    own = labels(server, engine="0")
    return {
        f"vllm_watch_{histogram}_sum{own}": growing(total),
        f"vllm_watch_{histogram}_count{own}": growing(count),
    }


def moved(series, each, **more):
    """Return a counter of the decode server."""
    return {f"vllm_watch_{series}{labels('d', engine='0', **more)}": growing(each)}


PAIR = {
    **of("p", "prefill"),
    **of("d", "decode"),
    **of("x", ""),
    **observed("p", "e2e_request_latency_seconds", 1.0, 2),
    **observed("p", "time_to_first_token_seconds", 1.0, 2),
    **observed("d", "time_to_first_token_seconds", 0.4, 2),
    **observed("d", "e2e_request_latency_seconds", 9.0, 2),
    **moved("kv_transfer_bytes_total", 5000, connector="nixl", direction="in"),
    **moved("kv_transfer_seconds_total", 0.5, connector="nixl", direction="in"),
    **moved("kv_transfers_total", 2, connector="nixl", direction="in"),
    **moved("kv_transfers_total", 6, connector="kv_offload", direction="out"),
    **moved("kv_transfers_skipped_total", 3, connector="kv_offload", reason="no_space"),
    **moved("kv_transfers_skipped_total", 1, connector="kv_offload", reason="not_reused"),
}
NAMES = (
    *((TABLE, column) for column in ("Role", "In", "Mean time", "Failed")),
    *((FIRST, name) for name in ("whole request", "first token", TOGETHER)),
    (SKIPPED, "{{connector}} {{reason}}"),
)


@pytest.fixture(scope="module")
def answers():
    """What each query gives at the end: values by the server, else by the reason."""
    queries = {name: Query(UID, *name) for name in NAMES}
    found = given_together(queries.values(), PAIR, STEPS)
    return {name: list(found[query].values())[-1] for name, query in queries.items()}


def by(answers, title, name, label):
    """Return values by a label."""
    return {dict(each).get(label): value for each, value in answers[title, name].items()}


def test_roles_are_told_and_others_are_not_listed(answers):
    """The prefill server is 1 and the decode server 2; a server without a role and without transfers has no row."""
    assert by(answers, TABLE, "Role", "server") == {"p": 1, "d": 2}


def test_the_pair_takes_both_halves(answers):
    """0.5 s on the prefill server and 0.2 s on the decode server are 0.7 s for the client."""
    assert by(answers, FIRST, "whole request", "server") == {"p": pytest.approx(0.5)}
    assert by(answers, FIRST, "first token", "server") == {"d": pytest.approx(0.2)}
    assert by(answers, FIRST, TOGETHER, "model_name") == {"m": pytest.approx(0.7)}


def test_bytes_and_times_are_of_the_direction(answers):
    """5,000 bytes at each step are 1,000 a second, and a transfer takes 0.25 s, those without a time left out."""
    assert by(answers, TABLE, "In", "server") == {"d": pytest.approx(5000 / SECONDS)}
    assert by(answers, TABLE, "Mean time", "server") == {"d": pytest.approx(0.25)}


def test_what_was_not_counted_is_no_zero(answers):
    """No connector has a count of failures here, so there is no number of them."""
    assert not answers[TABLE, "Failed"]


def test_shares_of_what_was_not_stored(answers):
    """Of ten stores three found no room, and one was not asked for often enough."""
    shares = by(answers, SKIPPED, "{{connector}} {{reason}}", "reason")

    assert shares == {"no_space": pytest.approx(0.3), "not_reused": pytest.approx(0.1)}
