# SPDX-License-Identifier: Apache-2.0
"""What vllm-watch watches: a recorded server that is replayed, or real ones."""

from __future__ import annotations

import sys

from collections.abc import Sequence
from typing import NamedTuple

from deploy.stack.processes import HOST

from vllm_watch.analysis.replay.recording import BUNDLED, server_name
from vllm_watch.cli.commands.options import PLAYBACK_SPEED, opened
from vllm_watch.daemon.catalog.number_texts import duration
from vllm_watch.daemon.config.from_options import config_from_options
from vllm_watch.daemon.support.errors import UsageError
from vllm_watch.daemon.support.printable import printable


class Options(NamedTuple):
    """The options that say what is watched; `None` where they are not given."""

    recording: str | None = None
    server: str | None = None
    speed: float | None = None
    log: str | None = None
    metrics: str | None = None
    here: bool = False

    @property
    def is_real(self) -> bool:
        """Whether real servers are watched."""
        return self.here or self.log is not None or self.metrics is not None


class Watched(NamedTuple):
    """
    How vllm-watch is started.

    Args:
        arguments: Its arguments, but for its address.
        speed: Seconds of a recording per second; 1 for a real server.
        text: What is watched, in words.
    """

    arguments: Sequence[str]
    speed: float
    text: str

    def command(self, port: int, prometheus: str) -> list[str]:
        """Return the command that serves on a port of loopback; `prometheus` is the URL of the one beside it."""
        where = ["--listen", f"{HOST}:{port}", "--prometheus", prometheus]
        return [sys.executable, "-m", "vllm_watch", *self.arguments, *where]


def watched(options: Options) -> Watched:
    """
    Return what the options ask for.

    Raises:
        UsageError, FileError: They contradict each other, or what they name cannot be read.
    """
    if not options.is_real:
        return _replayed(options)
    if options.recording is not None or options.server is not None or options.speed is not None:
        raise UsageError("RECORDING, SERVER and SPEED are for a replay: not together with a real server")
    if not options.here:
        return _of_sources(options.log, options.metrics)
    if options.log is not None or options.metrics is not None:
        raise UsageError("give HERE, or LOG and METRICS")
    return Watched(["run"], 1, "the vLLM servers of this machine, as they come and go")


def _replayed(options: Options) -> Watched:
    recording = opened(options.recording or str(BUNDLED))
    name = server_name(recording, options.server)
    speed = PLAYBACK_SPEED if options.speed is None else options.speed
    of_recording = ["--recording", options.recording] if options.recording is not None else []
    arguments = ["demo", *of_recording, "--server", name, "--speed", f"{speed:g}"]
    times = "as fast as it was" if speed == 1 else f"at {speed:g} times its speed"
    again = f"{duration(recording.seconds)} again and again, each time as another start (VllmRestartLoop tells of it)"
    text = f"the recorded server {printable(name)}, {again}, {times}"
    return Watched(arguments, speed, text)


def _of_sources(log: str | None, metrics: str | None) -> Watched:
    sources = {"--log": log, "--metrics": metrics}
    given = {option: value for option, value in sources.items() if value is not None}
    config_from_options([log] if log else [], [metrics] if metrics else [], None)  # Raises what is wrong with them.
    arguments = ["run", *(word for pair in given.items() for word in pair)]
    return Watched(arguments, 1, printable(" and ".join(given.values())))
