# SPDX-License-Identifier: Apache-2.0
"""What KV connectors have moved: from the page, or where there is none from the log's line, never from both."""

from __future__ import annotations

import pytest

from tests.state.test_hostile_pages import shown
from tests.support.server_stories import STARTING, Server, line, page


LABELS = 'engine="0",model_name="m"'
OF_PAGE = (
    f"vllm:nixl_xfer_time_seconds_sum{{{LABELS}}} 1.5\n"
    f"vllm:nixl_xfer_time_seconds_count{{{LABELS}}} 3\n"
    f"vllm:nixl_bytes_transferred_sum{{{LABELS}}} 4096\n"
    f'vllm:num_requests_kv_fetch_by_stage{{{LABELS},stage="in_progress"}} 2\n'
    f"vllm:kv_offload_cpu_cache_usage_perc{{{LABELS}}} 0.25\n"
)
MOVED = (
    b"INFO 11-21 02:35:10 [metrics.py:106] KV Transfer metrics: Num successful transfers=2, Avg xfer time (ms)=250.0, "
    b"Avg post time (ms)=1.0, Avg MB per transfer=1.0, Num failed transfers=1"
)
OFFLOADED = b"INFO 11-21 02:35:10 [metrics.py:106] KV Transfer metrics: vllm:kv_offload_cpu_cache_usage_perc=0.75"
FETCHING = line(waiting=3, generation=1.0).replace(
    b"GPU KV", b"KV fetch: 1 waiting to start, 2 in progress, 0 completed waiting, GPU KV"
)


def arguments(connector, role):
    """Return the lines of a server's start that show its connector."""
    given = f"{{'kv_transfer_config': KVTransferConfig(kv_connector='{connector}', kv_role='{role}')}}"
    return STARTING, f"INFO 11-21 02:35:10 [api_utils.py:286] non-default args: {given}".encode()


def kv(server, **labels):
    """Return the series of KV connectors by their names and labels, without those of the engine."""
    found = {}
    for (name, *pairs), value in shown(server).items():
        own = {label: text for label, text in pairs if label not in {"server", "model_name"}}
        if name.startswith("kv_") and not name.startswith("kv_cache") and labels.items() <= own.items():
            found[" ".join((name, *(text for label, text in own.items() if label != "engine")))] = value
    return found


def test_the_page_decides():
    """Where both report it, the page's values are shown, of counters and of the present."""
    server = Server().log(FETCHING, MOVED, OFFLOADED).scrape(page(extra=OF_PAGE))

    assert kv(server) == {
        "kv_transfer_seconds_total nixl in": 1.5,
        "kv_transfers_total nixl in": 3,
        "kv_transfer_bytes_total nixl in": 4096,
        "kv_fetch_requests in_progress": 2,
        "kv_offload_usage_ratio kv_offload cpu": 0.25,
    }


def test_a_log_alone_adds_its_intervals_up():
    """Each line has the counts of its interval; lines from before the daemon started are not counted."""
    server = Server(has_metrics=False).log(line(generation=1.0), MOVED, is_history=True)
    server.log(line(generation=1.0), MOVED, after=10).log(line(generation=1.0), MOVED, after=10)

    assert kv(server) == {
        "kv_transfers_total nixl in": 4,
        "kv_transfer_seconds_total nixl in": 1.0,
        "kv_transfer_bytes_total nixl in": 4 * 2**20,
        "kv_transfer_failures_total nixl transfer": 2,
    }


def test_a_line_belongs_to_the_engine_whose_statistics_came_before_it():
    """The line names no engine: with several it is that of the statistics line before it, as vLLM prints them."""
    server = Server(has_metrics=False)
    server.log(line(engine="000", generation=1.0), MOVED, line(engine="001", generation=1.0), MOVED, MOVED)

    assert kv(server, engine="0")["kv_transfers_total nixl in"] == 2
    assert kv(server, engine="1")["kv_transfers_total nixl in"] == 4


def test_what_an_idle_engine_printed_last_is_no_present():
    """The use of a tier and the requests that fetch are gone when the lines are old, or a later one has none."""
    server = Server(has_metrics=False).log(FETCHING, OFFLOADED)
    later = kv(server.log(line(generation=1.0), after=10))

    assert "kv_offload_usage_ratio kv_offload cpu" not in later
    assert not any(name.startswith("kv_fetch_requests") for name in later)
    server.log(FETCHING, OFFLOADED)
    server.now += 60
    assert not kv(server)


@pytest.mark.parametrize(
    ("role", "shown_as"), [("kv_producer", "prefill"), ("kv_consumer", "decode"), ("kv_both", "both"), ("x", "")]
)
def test_the_role_of_a_server(role, shown_as):
    """What a server does of shared requests is a label of its own series, by its arguments."""
    values = shown(Server().log(*arguments("NixlConnector", role)).scrape(page()))

    assert {shown_as} == {dict(series[1:])["pd_role"] for series in values if series[0] == "server_info"}


@pytest.mark.parametrize(("connector", "direction"), [("NixlConnector", "in"), ("NixlPushConnector", "out")])
def test_one_of_nixls_connectors_sends(connector, direction):
    """NIXL's transfers are those of the reader, but of the connector that sends."""
    server = Server().log(*arguments(connector, "kv_producer")).scrape(page(extra=OF_PAGE))

    assert [name for name in kv(server) if "bytes" in name] == [f"kv_transfer_bytes_total nixl {direction}"]
