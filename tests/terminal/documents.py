# SPDX-License-Identifier: Apache-2.0
"""Documents of recorded servers, as a vllm-watch has them at a moment."""

from __future__ import annotations

import functools
import json

from tests.support.recordings import recording

from vllm_watch.cli.terminal.frames import frame_of
from vllm_watch.cli.terminal.replay_reader import Replay
from vllm_watch.daemon.exposition.document import decode


RECEIVED = 77.0

MOMENTS = {
    "starting": ("day", 20.0),
    "idle": ("day", 40.0),
    "serving": ("day", 185.0),
    "saturated": ("day", 400.0),
    "down": ("day", 515.0),
    "unknown": ("stall", 5.0),
    "stalled": ("stall", 145.0),
    "sleeping": ("sleep", 200.0),
}
"""A moment of a recording in each state, in seconds from its start."""


@functools.cache
def body(state):
    """Return the document of a recorded server when its engine was in a state."""
    name, seconds = MOMENTS[state]
    played = recording(name)
    replay = Replay(played, played.servers[:1])
    replay.advance(seconds)
    return replay.document(seconds, None)


def fleet(*states):
    """Return one document of a server in each of these states, named after it, as plain data."""
    documents = [json.loads(body(state)) for state in states]
    servers = [{**document["servers"][0], "name": state} for state, document in zip(states, documents, strict=True)]
    return {"version": "9.9", "at": max(document["at"] for document in documents), "servers": servers}


def frame(*states, only=None):
    """Return the frame of servers in these states."""
    return frame_of(decode(json.dumps(fleet(*states)).encode()), RECEIVED, only)
