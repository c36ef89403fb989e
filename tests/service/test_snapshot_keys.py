# SPDX-License-Identifier: Apache-2.0
"""API.md lists the keys of the snapshot."""

from __future__ import annotations

import json
import re

from collections import defaultdict
from pathlib import Path

import msgspec

from tests.support.gpus import gpu
from tests.support.server_stories import READY, STARTING, Server, page
from tests.terminal.documents import MOMENTS, fleet

from vllm_watch.daemon.config.model import Config
from vllm_watch.daemon.exposition.document import AlertDocument
from vllm_watch.daemon.exposition.json_view import event_documents, server_view
from vllm_watch.daemon.service.alerts import Alerts, alerts_view
from vllm_watch.daemon.service.checkpointer import Checkpointer
from vllm_watch.daemon.service.fleet import Fleet, fleet_document
from vllm_watch.daemon.state.gpu_report import ServerGpu
from vllm_watch.daemon.state.probe_source import ProbeResult
from vllm_watch.daemon.state.snapshot import ServerEvent
from vllm_watch.daemon.support.clock import ScaledClock
from vllm_watch.daemon.support.own_health import InternalErrors


OF_OBJECTS = ("/", "prometheus", "alerts[]", "replay", "servers[]")
"""How the paths of objects begin in the table."""

DAEMON = Path(__file__).parents[2] / "daemon"
BY_NAME = ("flags", "gauges", "counters", "quantiles", "capacity", "values", "values_by_label", "throttled")
"""Objects whose keys are names: of flags, of series, of stages, of bases."""

FLAGS = b"INFO 11-21 02:35:10 [api_utils.py:1] non-default args: {'model': 'm', 'max_num_seqs': %d}"
ALERT = AlertDocument(
    "VllmEngineDown", "critical", "firing", "s", "0", "h:9468", 1.0, "It is down.", "http://a", "http://b"
)


def listed():
    """Return the keys of each object, by its path, as a document lists them."""
    rows = re.findall(r"^\| `([^`]+)` \| (.+) \|$", (DAEMON / "API.md").read_text(encoding="utf-8"), re.MULTILINE)
    return {path: set(re.findall(r"`(\w+)`", keys)) for path, keys in rows if path.startswith(OF_OBJECTS)}


def found(value, path="", keys=None):
    """Return the keys of each object of a document, by its path; what is there by name has NAME in it."""
    keys = defaultdict(set) if keys is None else keys
    if isinstance(value, list):
        for each in value:
            found(each, f"{path}[]", keys)
    elif isinstance(value, dict):
        is_by_name = path.rpartition(".")[2] in BY_NAME
        if not is_by_name:
            keys[path or "/"] |= value.keys()
        for name, each in value.items():
            found(each, f"{path}.{'NAME' if is_by_name else name}".removeprefix("."), keys)
    return keys


def documents():
    """Return snapshots of recorded servers in each state, and what no recording has."""
    both = Server().log(STARTING, FLAGS % 8, READY).log(STARTING, FLAGS % 24, READY, after=60).scrape(page(running=1))
    snapshot = both.state.snapshot(both.now)._replace(probe=ProbeResult(both.now, "ok", 0.1))
    used = ServerGpu("GPU-1", "pid", is_shared=True, memory=1.0, reading=gpu(), other_memory=1.0, throttled={})
    fallen = ServerEvent(1.0, "xid", "79", gpu="0000:18:00")
    dumped = ServerEvent(1.0, "failure", "stack_dumped", path="/d/VLLM_STACK_DUMP_for_engine_7.log")
    whole = server_view(snapshot._replace(gpus=(used,), gpu_xids=1, cost_per_hour=1.0, events=(fallen,)))
    whole["events"] = msgspec.to_builtins(event_documents([fallen, dumped]))
    unknown = alerts_view(Alerts(1.0, None, "http://p: it has not answered yet"), {"s"}, 0.0)
    known = alerts_view(Alerts(1.0, (ALERT,)), {"s"}, 0.0)
    clock = ScaledClock(10)
    replayed = json.loads(
        fleet_document(Fleet(Config(), clock, Checkpointer(Config(), clock), InternalErrors()), clock)
    )
    return [fleet(*MOMENTS), {"servers": [whole]}, unknown, known, replayed]


def test_each_key_of_the_snapshot_is_listed():
    """The table has each key that a snapshot has, at its object, and no other."""
    keys = defaultdict(set)
    for each in documents():
        found(json.loads(json.dumps(each)), "", keys)

    assert listed() == {path: keys[path] for path in listed()}
    assert set(OF_OBJECTS) < listed().keys()
