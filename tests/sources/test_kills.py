# SPDX-License-Identifier: Apache-2.0
"""
T27: a daemon that is killed again and again, in the middle of anything, while its log is written and rotated.

It runs on one core, beside a process that takes all of it. A few kills are enough for every day, and some more for
``--whole``; ``VLLM_WATCH_KILLS=200`` kills as often as that, after lives of up to 6 s.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time

from pathlib import Path

import pytest

from tests.sources.test_tail_model import stats_line
from tests.support.processes import busy_core, run_on
from tests.support.samples import number_of
from tests.support.waiting import until

from vllm_watch.daemon.sources.checkpoint import CheckpointFile


pytestmark = pytest.mark.slow


KILLS = number_of(3, whole=8, variable="VLLM_WATCH_KILLS")
LIFE_SECONDS = (0.2, 6.0) if "VLLM_WATCH_KILLS" in os.environ else (0.2, 1.5)
LINES_PER_SECOND = 2_000
CHUNK_SECONDS = 0.025
LINES_PER_FILE = 5_000 * max(KILLS // 8, 1)
DEADLINE = 120.0 + 3.0 * KILLS
MOST_READ = 3.0
"""Lines read by those written: each life may read again what the one before it read after it saved last."""

DAEMON = """
import sys
from vllm_watch.daemon.support.clock import SystemClock
from vllm_watch.daemon.config.model import Config, ServerConfig
from vllm_watch.daemon.service.supervisor import run_service
from vllm_watch.daemon.state.server import ServerState
from vllm_watch_parsers.events import EngineStats

log, kept, told = sys.argv[1:]
out = open(told, "ab", buffering=0)
apply_log = ServerState.apply_log

def tell(state, batch):
    if not batch.is_history:
        said = [item.event for item in batch.events if isinstance(item.event, EngineStats)]
        out.write(b"".join(b"\\n%d %d." % (each.requests_running, each.generation_tokens_per_second) for each in said))
    apply_log(state, batch)

ServerState.apply_log = tell
run_service(
    Config(listen="127.0.0.1:0", checkpoint=kept, servers=(ServerConfig(name="a", log=log),)), SystemClock()
)
"""


class Writer(threading.Thread):
    """Writes numbered lines at a steady pace until it is told to end, and rotates as logrotate does."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path = path
        self.file = path.open("ab", buffering=0)
        self.number = self.files = 0
        self.is_over = threading.Event()

    def run(self):
        """Write a chunk at a time; where the machine held it up, more."""
        started = time.monotonic()
        while not self.is_over.wait(CHUNK_SECONDS):
            due = int((time.monotonic() - started) * LINES_PER_SECOND)
            while self.number < due:
                end = min(due, (self.number // LINES_PER_FILE + 1) * LINES_PER_FILE)
                self.file.write(b"".join(stats_line(number) for number in range(self.number + 1, end + 1)))
                self.number = end
                if end % LINES_PER_FILE == 0:
                    self.rotate()

    def rotate(self):
        """Make room by renaming, the oldest first."""
        for number in range(self.files, 0, -1):
            Path(f"{self.path}.{number}").rename(f"{self.path}.{number + 1}")
        self.path.rename(f"{self.path}.1")
        self.files += 1
        self.file.close()
        self.file = self.path.open("ab", buffering=0)


def ends_with(told, number):
    """Tell whether a line was read lately."""
    with told.open("rb") as file:
        file.seek(max(told.stat().st_size - 100_000, 0))
        return f"\n{number} {number}.".encode() in file.read()


def started(command, core):
    """Start a daemon on one core."""
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    run_on(core, process)
    return process


def test_no_line_is_lost_through_kills_on_a_busy_machine(tmp_path):
    """T27: every line is read and whole, few are read twice, and whatever moment it died at, the checkpoint is good."""
    log, kept, told = tmp_path / "vllm.log", tmp_path / "state.json", tmp_path / "told"
    seed = int(os.environ.get("VLLM_WATCH_SEED", random.randrange(2**32)))
    chance = random.Random(seed)
    log.write_bytes(stats_line(0))
    writer = Writer(log)
    command = [sys.executable, "-c", DAEMON, str(log), str(kept), str(told)]

    with busy_core() as core:
        process = started(command, core)
        try:
            until(kept.exists, DEADLINE)
            writer.start()
            for _ in range(KILLS):
                time.sleep(chance.uniform(*LIFE_SECONDS))
                process.send_signal(signal.SIGKILL)
                process.wait()
                assert CheckpointFile(str(kept)).load(time.time()).reason == "ok"
                process = started(command, core)
            writer.is_over.set()
            writer.join()
            until(lambda: told.exists() and ends_with(told, writer.number), DEADLINE)
        finally:
            process.kill()
            process.wait()
            writer.is_over.set()
            writer.file.close()

    # What was being told when it was killed has no full stop: its lines are read again.
    read = [line[:-1].split() for line in told.read_text().splitlines() if line.endswith(".")]
    lost = sorted(set(range(1, writer.number + 1)) - {int(number) for number, _ in read})
    sys.stdout.write(f"{KILLS} kills: {writer.number} lines written, {len(lost)} lost, {len(read)} read\n")
    assert all(len(pair) == 2 and pair[0] == pair[1] for pair in read)
    assert lost == [], f"VLLM_WATCH_SEED={seed}: {len(lost)} lines from {lost[0]} to {lost[-1]}"
    assert len(read) <= MOST_READ * writer.number, f"VLLM_WATCH_SEED={seed}"
