# SPDX-License-Identifier: Apache-2.0
"""A value of one server that cannot be shown hides no other server, and is counted."""

from __future__ import annotations

import pytest

from prometheus_client.parser import text_string_to_metric_families as parse_text
from tests.support.pages import ScrapedServer, page

from vllm_watch.daemon.discovery.command_line import arguments_of, parse_arguments
from vllm_watch.daemon.exposition.collector import TextCollector
from vllm_watch.daemon.exposition.text_format import prometheus_text
from vllm_watch.daemon.state.server import ServerSettings, ServerState
from vllm_watch_parsers.flags import CommandFacts


def shown(*snapshots):
    """Return the servers on the page, and those that could not be shown."""
    failed = []
    texts = TextCollector().texts(snapshots, list, failed=lambda name, _error: failed.append(name))
    body = b"".join(prometheus_text(texts)).decode()
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


@pytest.mark.parametrize("model", ["/models/caf\udce9", "/models/" + "x" * 5000, "a b", "m\n", ""])
def test_a_command_line_names_a_model_as_a_log_would(model):
    """A discovered server's model has a name only if it is spelt like one, and is not too long: it becomes a label."""
    command = parse_arguments(arguments_of(["/usr/bin/vllm", "serve", model, "--port", "8000"]))

    assert command.facts.model_name == ""
    assert parse_arguments(arguments_of(["vllm", "serve", "Qwen/Qwen3-8B"])).facts.model_name == "Qwen/Qwen3-8B"
