# SPDX-License-Identifier: Apache-2.0
"""
T33: random histories of a log against a model of what must be read.

Each line holds one number twice, in fields that are read separately, so that a line torn or spliced from two shows.
The model knows of each line whether it may be lost: because its file was truncated, removed, or rotated out of reach
before the next look. Everything else must be read, and once, unless the daemon was killed.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time

from pathlib import Path

import pytest

from vllm_watch.sources.tail import LogTail
from vllm_watch_parsers.events import EngineStats


HISTORIES = 2000
BATCH = 100
ACTIONS = 60
RETENTION = 3


def stats_line(number):
    """Return a line that says its number twice."""
    return (
        f"INFO 11-21 02:35:10 [loggers.py:335] Engine 000: Avg prompt throughput: 1.0 tokens/s, Avg generation "
        f"throughput: {number}.0 tokens/s, Running: {number} reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%\n"
    ).encode()


class History:
    """A log, its writer, the daemon that follows it, and what must come of it."""

    def __init__(self, folder, seed):
        self.random = random.Random(seed)
        self.path = Path(folder) / "vllm.log"
        self.writer = open(self.path, "ab", buffering=0)  # noqa: SIM115  # Held open, as a server holds its log.
        self.files = [[]]
        self.number = 0
        self.partial = b""
        self.now = 1000.0
        self.read = []
        self.excused = set()
        self.repeatable = set()
        self.read_since_save = []
        self.tail = LogTail(str(self.path))
        self.tail.poll(self.now)
        self.save()

    @property
    def expected(self):
        """The numbers that must be read."""
        return set(range(1, self.number + 1)) - self.excused

    def unread(self, file):
        """Return a file's numbers that were not read yet."""
        return {number for number in file if number not in set(self.read)}

    def write(self):
        """Append some lines."""
        self.finish_partial()
        for _ in range(self.random.randint(1, 8)):
            self.number += 1
            self.writer.write(stats_line(self.number))
            self.files[0].append(self.number)

    def write_partial(self):
        """Append the beginning of a line."""
        self.finish_partial()
        self.number += 1
        line = stats_line(self.number)
        cut = self.random.randint(1, len(line) - 1)
        self.writer.write(line[:cut])
        self.partial = line[cut:]
        self.files[0].append(self.number)

    def finish_partial(self):
        """Append the rest of it."""
        if self.partial:
            self.writer.write(self.partial)
            self.partial = b""

    def lose_partial(self):
        """Forget the rest: the file is gone."""
        if self.partial:
            self.partial = b""
            self.excused.add(self.number)

    def rotate(self):
        """Rename as logrotate does, and go on in a new file."""
        self.finish_partial()
        oldest = self.path.with_name(f"vllm.log.{RETENTION}")
        if oldest.exists():
            oldest.unlink()
            self.excused |= self.unread(self.files.pop())
        for index in range(RETENTION - 1, 0, -1):
            source = self.path.with_name(f"vllm.log.{index}")
            if source.exists():
                source.rename(self.path.with_name(f"vllm.log.{index + 1}"))
        self.path.rename(self.path.with_name("vllm.log.1"))
        self.reopen()
        self.files.insert(0, [])

    def reopen(self):
        """Let the writer open the path anew."""
        self.writer.close()
        self.writer = open(self.path, "ab", buffering=0)  # noqa: SIM115  # Held open, as a server holds its log.

    def truncate(self):
        """Empty the file, and perhaps fill it again."""
        self.lose_partial()
        self.excused |= self.unread(self.files[0])
        os.truncate(self.path, 0)
        self.files[0] = []
        if self.random.random() < 0.5:
            self.write()

    def delete(self):
        """Remove the file after a look, and go on in a new one."""
        self.lose_partial()
        self.poll()
        self.excused |= self.unread(self.files[0])
        self.path.unlink()
        self.reopen()
        self.files[0] = []

    def punch_hole(self):
        """Write as a writer without O_APPEND does after a truncation: far behind the end."""
        self.finish_partial()
        with open(self.path, "r+b") as file:
            file.seek(0, os.SEEK_END)
            file.seek(self.random.randint(1, 3_000_000), os.SEEK_CUR)
            self.number += 1
            file.write(b"\n" + stats_line(self.number))
            self.files[0].append(self.number)

    def poll(self):
        """Look once, and check every value."""
        self.now += 1
        for batch, is_history in self.tail.poll(self.now):
            for timed in batch.events:
                event = timed.event
                if isinstance(event, EngineStats) and not is_history:
                    assert event.generation_tokens_per_second == event.requests_running, "a torn line"
                    assert event.requests_running <= self.number, "a value that nobody wrote"
                    self.read.append(event.requests_running)
                    self.read_since_save.append(event.requests_running)

    def save(self):
        """Write a checkpoint."""
        self.saved = self.tail.positions()
        self.saved_at = time.time()
        self.read_since_save = []

    def restart(self):
        """Stop the daemon well, and start it again."""
        self.poll()
        self.save()
        self.start_again()

    def kill(self):
        """Start the daemon again from its last checkpoint."""
        self.repeatable |= set(self.read_since_save)
        self.start_again()
        self.read_since_save = []

    def start_again(self):
        """Start a daemon, after some time without one."""
        self.tail.close()
        for _ in range(self.random.choice([0, 0, 1, 2])):
            self.random.choice([self.write, self.rotate])()
        self.tail = LogTail(str(self.path), self.saved, self.saved_at)
        before = set(self.read)
        self.poll()
        counts = self.tail.status().tail
        if counts.lost_generations or counts.truncations or any(position.offset == 0 for position in self.saved):
            self.repeatable |= before  # Which of the files were read can only be told by their times.
        self.save()

    def run(self):
        """Let it all happen."""
        actions = [self.write] * 6 + [self.poll] * 6 + [self.write_partial] * 2 + [self.save] * 2
        actions += [self.rotate] * 3 + [self.truncate, self.delete, self.restart, self.kill, self.punch_hole]
        for _ in range(ACTIONS):
            self.random.choice(actions)()
        self.finish_partial()
        for _ in range(4):
            self.poll()
        self.tail.close()
        self.writer.close()


@pytest.mark.parametrize("batch", range(HISTORIES // BATCH))
def test_random_histories(batch):
    """Whatever happens to a log, no line is torn, none that can be reached is lost, and none is read twice."""
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        folder = tempfile.mkdtemp()
        try:
            history = History(folder, seed)
            history.run()
            lost = history.expected - set(history.read)
            twice = {n for n in set(history.read) if history.read.count(n) > 1} - history.repeatable
            assert not lost, f"seed {seed}: lost {sorted(lost)}"
            assert not twice, f"seed {seed}: twice {sorted(twice)}"
        finally:
            shutil.rmtree(folder)
