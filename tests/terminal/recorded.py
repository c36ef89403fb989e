# SPDX-License-Identifier: Apache-2.0
"""Servers of recordings as frames, each at the same moment of the calendar."""

from __future__ import annotations

import functools
import json

from tests.support.gpus import as_json, source
from tests.support.recordings import recording
from tests.terminal.documents import body
from tests.terminal.made_up import AT

from vllm_watch.cli.terminal.frames import Frame, frame_of
from vllm_watch.cli.terminal.replay_reader import Replay
from vllm_watch.daemon.exposition.document import decode


_TIMES = {"at", "last_reading", "start_time"}
_RECENT = 30


@functools.cache
def recorded_server(state):
    """Return a recorded server when its engine was in a state, as if that were at `AT`."""
    return _server(json.loads(body(state)), state)


@functools.cache
def two_engines():
    """Return a recorded server with two engines."""
    played = recording("dp1")
    replay = Replay(played, played.servers[:1])
    replay.advance(90.0)
    return _server(json.loads(replay.document(90.0, None)), "two-engines")


def with_gpus(*gpus, reason="ok", errors=()):
    """Return a recorded server that is serving on these GPUs."""
    document = json.loads(body("serving"))
    (server,) = document["servers"]
    server["gpus"], server["gpu_errors"] = as_json(*gpus), list(errors)
    server["sources"].append({**source(reason), "last_reading": document["at"] - 2})
    return _server(document, "serving")


def recorded_frame(*servers):
    """Return a frame that was read one second before `AT`."""
    return Frame(AT - 1, AT - 1, servers)


def _server(document, name):
    moved = _moved(document, AT - 1 - document["at"])
    moved["servers"][0]["name"] = name
    server = frame_of(decode(json.dumps(moved).encode()), AT - 1).servers[0]
    return server._replace(recent=server.hour[-_RECENT:])


def _moved(node, seconds):
    """Return plain data with all times later by so much."""
    if isinstance(node, list):
        return [_moved(each, seconds) for each in node]
    if not isinstance(node, dict):
        return node
    return {name: _moved_value(name, value, seconds) for name, value in node.items()}


def _moved_value(name, value, seconds):
    if name in _TIMES and isinstance(value, float):
        return value + seconds
    if name == "t":
        return [each + seconds for each in value]
    if name == "last_token_timestamp_seconds":
        return {**_moved(value, seconds), "value": value["value"] + seconds}
    return _moved(value, seconds)
