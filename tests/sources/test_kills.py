# SPDX-License-Identifier: Apache-2.0
"""T27: a follower that is killed again and again, in the middle of anything, while its log is written and rotated."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time

from pathlib import Path

from tests.sources.test_tail_model import stats_line

from vllm_watch.checkpoint import CheckpointFile


KILLS = 200
LINES = 200_000
CHUNK = 50
LINES_PER_FILE = 5_000
RETENTION = LINES // LINES_PER_FILE + 1
LIFE_SECONDS = 0.35
DEADLINE = 30.0
SAVE_INTERVAL = 0.05
"""Seconds between two checkpoints, so that a short life has as many of them as a long one."""

FOLLOWER = f"""
import sys, time
from vllm_watch import checkpoint as checkpoint_module
from vllm_watch.checkpoint import CheckpointFile, Positions
from vllm_watch.sources.tail import LogTail
from vllm_watch_parsers.events import EngineStats

checkpoint_module.SAVE_INTERVAL = {SAVE_INTERVAL}
log, kept, told = sys.argv[1:]
checkpoint = CheckpointFile(kept)
loaded = checkpoint.load(time.time())
tail = LogTail(log, loaded.positions.files, loaded.written)
out = open(told, "ab", buffering=0)
while True:
    numbers = []
    for batch, is_history in tail.poll(time.monotonic()):
        for item in batch.events:
            if not is_history and isinstance(item.event, EngineStats):
                numbers.append(f"{{item.event.requests_running}} {{item.event.generation_tokens_per_second:.0f}}\\n")
    out.write("".join(numbers).encode())
    checkpoint.save(Positions(tail.positions()), time.time())
    if not tail.has_more:
        time.sleep(0.002)
"""


class Writer(threading.Thread):
    """Writes numbered lines for as long as the kills last, in pieces, and rotates as logrotate does."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path = path
        self.file = path.open("ab", buffering=0)
        self.pace = threading.Semaphore(0)
        self.number = 0

    def run(self):
        """Write a chunk whenever it is let."""
        while self.number < LINES:
            self.pace.acquire()
            if self.number and self.number % LINES_PER_FILE == 0:
                self.rotate()
            self.file.write(b"".join(stats_line(self.number + step) for step in range(1, CHUNK + 1)))
            self.number += CHUNK

    def rotate(self):
        """Make room by renaming, the oldest first."""
        for number in range(RETENTION, 0, -1):
            old = Path(f"{self.path}.{number}")
            if old.exists():
                old.rename(f"{self.path}.{number + 1}")
        self.path.rename(f"{self.path}.1")
        self.file.close()
        self.file = self.path.open("ab", buffering=0)


def until(condition):
    """Wait until something is so."""
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_no_line_is_lost_through_two_hundred_kills(tmp_path):
    """T27: every line is read at least once and whole, and whatever moment it died at, the checkpoint is good."""
    log, kept, told = tmp_path / "vllm.log", tmp_path / "state.json", tmp_path / "told"
    seed = int(os.environ.get("VLLM_WATCH_SEED", random.randrange(2**32)))
    chance = random.Random(seed)
    log.write_bytes(stats_line(0))
    writer = Writer(log)
    command = [sys.executable, "-c", FOLLOWER, str(log), str(kept), str(told)]

    process = subprocess.Popen(command)
    try:
        until(kept.exists)
        writer.start()
        written = 0
        for kill in range(1, KILLS + 1):
            end = time.monotonic() + chance.uniform(0, 2 * LIFE_SECONDS)
            share = LINES // CHUNK * kill // KILLS - written
            for step in range(share):
                writer.pace.release()
                written += 1
                time.sleep(max(end - time.monotonic(), 0) / (share - step))
            process.send_signal(signal.SIGKILL)
            process.wait()
            assert CheckpointFile(str(kept)).load(time.time()).reason == "ok"
            process = subprocess.Popen(command)
        writer.join()
        until(lambda: told.exists() and f"{LINES} {LINES}\n".encode() in told.read_bytes()[-100_000:])
    finally:
        process.kill()
        process.wait()
        writer.file.close()

    read = [line.split() for line in told.read_text().splitlines()]
    assert all(len(pair) == 2 and pair[0] == pair[1] for pair in read)
    lost = sorted(set(range(1, LINES + 1)) - {int(number) for number, _ in read})
    assert lost == [], f"VLLM_WATCH_SEED={seed}: {len(lost)} lines from {lost[0]} to {lost[-1]}"
