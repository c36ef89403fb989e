# SPDX-License-Identifier: Apache-2.0
"""
T33: random histories of a log against a model of what must be read, on a disk and on a file system that fails.

Each line holds one number twice, in fields that are read separately, so that a line torn or spliced from two shows.
The model knows of each line whether it may be lost: because its file was truncated, removed, or rotated out of reach
before the next poll. Everything else must be read, and once, unless the daemon was killed. A file system that fails
does so from some call of a poll on, or for whole polls it names nothing or lets nobody in; one that hangs lets a call
of a poll wait while the log goes on, until it answers, fails, or the daemon is killed.

The times of its files are the model's, and go on as its clock does: at the pace of a busy machine, on which many things
happen between two ticks of the file system's clock, or slowly. Which new file gets a removed one's inode is decided by
it, too. A history depends neither on how fast it is played nor on what else the machine does.

``VLLM_WATCH_HISTORIES=2000`` runs as many of each kind.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import tempfile
import threading

from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.samples import number_of
from tests.support.waiting import SECONDS

from vllm_watch.daemon.sources import file_follower, log_file, log_tailer, rotation
from vllm_watch.daemon.sources.log_tailer import LogTailer
from vllm_watch_parsers.events import EngineStats


pytestmark = pytest.mark.slow


BATCHES = 4
HISTORIES = number_of(80, whole=250, variable="VLLM_WATCH_HISTORIES")
BATCH = HISTORIES // BATCHES
FAILURES = (errno.EIO, errno.ESTALE)
ABSENCES = (errno.ENOENT, errno.EACCES)
BY_PATH = frozenset({"stat", "open", "scandir"})
CALLS = BY_PATH | {"fstat", "pread", "lseek"}
ACTIONS = 60
RETENTION = 3
LINE_START = len("INFO 11-21 00:00:00")
CLOCK = 1_763_683_200.0
PACES = ((0.0, 0.001), (0.0, 0.001, 0.02, 1.0), (1.0,))
TICK = 0.004


def stats_line(number):
    """Return a line that says its number twice, at a time of its own: the beginnings of lines tell them apart."""
    minute, second = divmod(number, 60)
    return (
        f"INFO 11-21 {minute // 60 % 24:02d}:{minute % 60:02d}:{second:02d} [loggers.py:335] Engine 000: "
        f"Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: {number}.0 tokens/s, "
        f"Running: {number} reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%\n"
    ).encode()


def is_open(path):
    """Tell whether this process has a file open."""
    status = path.stat()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # Closed meanwhile, or on a file system of another test that is gone.
            if os.path.samestat(status, os.fstat(int(name))):
                return True
    return False


class FileSystem:
    """
    Stands for `os` in the tail's modules; its calls fail, or one of them hangs, when it is told to.

    Attributes:
        calls: How many calls are still done before it fails or hangs; `None` if it does neither.
        number: The error that it then fails with; one of those that concern paths leaves alone what is open.
        has_failed: Whether a call has failed since this was last said to be untrue.
    """

    path = os.path

    def __init__(self):
        self.calls = None
        self.number = None
        self.has_failed = False
        self.is_hanging = threading.Event()
        self.is_over = threading.Event()

    def __getattr__(self, name):
        """Return what `os` has, as long as it works."""
        real = getattr(os, name)
        return (lambda *given, **options: self._call(real, *given, **options)) if name in CALLS else real

    def _call(self, real, *given, **options):
        if self.calls is not None:
            self.calls -= 1
            if self.calls < 0 and self.number is None:
                self.calls = None
                self.is_hanging.set()
                assert self.is_over.wait(SECONDS)
                if self.number is not None:
                    number, self.number, self.has_failed = self.number, None, True
                    raise OSError(number, os.strerror(number))
            elif self.calls < 0 and (self.number not in ABSENCES or real.__name__ in BY_PATH):
                self.has_failed = True
                raise OSError(self.number, os.strerror(self.number))
        return real(*given, **options)

    def fail(self, number, calls):
        """Fail from some call on."""
        self.number, self.calls = number, calls

    def heal(self):
        """Work again."""
        self.number = self.calls = None

    def hang(self, calls):
        """Let one call wait, the next but so many."""
        self.is_hanging.clear()
        self.is_over.clear()
        self.number, self.calls = None, calls

    def answer(self, number=None):
        """Let the call that waits go on, or fail."""
        self.number = number
        self.calls = None
        self.is_over.set()


class History:
    """A log, its writer, the daemon that follows it, and what must come of it."""

    def __init__(self, folder, seed, system=None):
        self.random = random.Random(seed)
        self.system = system
        self.path = self.followed = Path(folder) / "vllm.log"
        self.targets = 0
        self.copies = self.random.random() < 0.4
        if self.random.random() < 0.3:
            self.path = Path(folder) / "target-0.log"
            self.followed.symlink_to(self.path)
        self.pace = random.Random(f"pace {seed}")
        self.steps = self.pace.choice(PACES)
        self.clock = CLOCK
        self.removed = 0
        self.free = []
        self.held = []
        self.open()
        self.files = [[]]
        self.number = 0
        self.partial = b""
        self.now = 1000.0
        self.read = []
        self.excused = set()
        self.repeatable = set()
        self.read_since_save = []
        self.tail = LogTailer(str(self.followed), wall=self.wall)
        self.take_in(self.tail.poll(self.now))
        self.save()

    @property
    def expected(self):
        """The numbers that must be read."""
        return set(range(1, self.number + 1)) - self.excused

    def unread(self, file):
        """Return a file's numbers that were not read yet."""
        return {number for number in file if number not in set(self.read)}

    def open(self):
        """Let the writer open the path, whose file may have to be made."""
        if not self.path.exists():
            self.make(self.path)
        self.writer = open(self.path, "ab", buffering=0)  # noqa: SIM115  # Held open, as a server holds its log.
        self.date(self.path)

    def make(self, path):
        """Make an empty file, perhaps with the inode of one that was removed."""
        if self.free and self.pace.random() < 0.5:
            self.free.pop().rename(path)
            os.truncate(path, 0)
        else:
            path.touch()

    def remove(self, path):
        """Remove a file, and keep its inode: to be used again, or from being so if somebody has the file open."""
        if is_open(path):
            self.held.append(open(path, "rb"))  # noqa: SIM115  # Until the end.
            path.unlink()
        else:
            self.removed += 1
            self.free.append(path.rename(path.with_name(f"free-{self.removed}")))

    def date(self, path):
        """Let some time pass, and give a file that was just made or changed the time of the file system's clock."""
        self.pass_time()
        ticks = int(self.clock / TICK)
        os.utime(path, (ticks * TICK, ticks * TICK))

    def pass_time(self):
        """Let some time pass, or none."""
        self.clock += self.pace.choice(self.steps)

    def wall(self, _):
        """Return the time by the clock that dates the files: the tail asks at the beginning of a poll."""
        return self.clock

    def append(self, data):
        """Let the writer write."""
        self.writer.write(data)
        self.date(self.path)

    def write(self):
        """Append some lines."""
        self.finish_partial()
        for _ in range(self.random.randint(1, 8)):
            self.number += 1
            self.append(stats_line(self.number))
            self.files[0].append(self.number)

    def write_partial(self):
        """Append the beginning of a line."""
        self.finish_partial()
        self.number += 1
        line = stats_line(self.number)
        cut = self.random.randint(LINE_START, len(line) - 1)
        self.append(line[:cut])
        self.partial = line[cut:]
        self.files[0].append(self.number)

    def finish_partial(self):
        """Append the rest of it."""
        if self.partial:
            self.append(self.partial)
            self.partial = b""

    def lose_partial(self):
        """Forget the rest: the file is gone."""
        if self.partial:
            self.partial = b""
            self.excused.add(self.number)

    def rotate(self):
        """Rename as logrotate does and go on in a new file, or copy and truncate: each log has its way."""
        if self.copies:
            self.copytruncate()
            return
        self.finish_partial()
        self.make_room()
        self.path.rename(self.rotated(1))
        self.reopen()
        self.files.insert(0, [])

    def rotated(self, index):
        """Return the path of a rotated file."""
        return self.path.with_name(f"{self.path.name}.{index}")

    def make_room(self):
        """Rename the rotated files; the oldest goes."""
        if self.rotated(RETENTION).exists():
            self.remove(self.rotated(RETENTION))
            self.excused |= self.unread(self.files.pop())
        for index in range(RETENTION - 1, 0, -1):
            if self.rotated(index).exists():
                self.rotated(index).rename(self.rotated(index + 1))

    def copytruncate(self):
        """Copy and truncate as logrotate does; a line that is being written is torn."""
        if self.partial:
            self.excused.add(self.number)
        self.make_room()
        self.make(self.rotated(1))
        shutil.copy(self.path, self.rotated(1))
        self.date(self.rotated(1))
        self.empty()
        self.files.insert(0, [])

    def switch(self):
        """Let the link lead to another file after a poll; the old one is written once more."""
        if self.path == self.followed:
            return
        self.poll()
        self.write()
        self.targets += 1
        self.path = self.path.with_name(f"target-{self.targets}.log")
        self.reopen()
        link = self.path.with_name("link")
        link.symlink_to(self.path)
        link.replace(self.followed)
        self.files.insert(0, [])
        self.write()
        self.poll()
        del self.files[1:]

    def recreate(self):
        """Remove the file and make another, perhaps with the same inode."""
        self.lose_partial()
        self.excused |= self.unread(self.files[0])
        self.writer.close()
        self.remove(self.path)
        self.reopen()
        self.files[0] = []

    def reopen(self):
        """Let the writer open the path anew."""
        self.writer.close()
        self.open()

    def empty(self):
        """Truncate the file."""
        os.truncate(self.path, 0)
        self.date(self.path)

    def truncate(self):
        """Empty the file, and perhaps fill it again."""
        self.lose_partial()
        self.excused |= self.unread(self.files[0])
        self.empty()
        self.files[0] = []
        if self.random.random() < 0.5:
            self.write()

    def delete(self):
        """Remove the file after a poll, and go on in a new one."""
        self.lose_partial()
        self.poll()
        self.excused |= self.unread(self.files[0])
        self.remove(self.path)
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
        self.date(self.path)

    def poll(self):
        """Poll once, and check every value."""
        self.now += 1
        self.pass_time()
        if self.system is not None:
            self.system.has_failed = False
        self.take_in(self.tail.poll(self.now))

    def take_in(self, batches):
        """Check and keep what a poll has brought, and where it stopped: that is what is known until the next one."""
        has_failed = self.system is not None and self.system.has_failed
        if self.system is not None and self.tail.status().tail.files_lost:
            self.repeatable |= set(self.read)  # A file was given up for lost that is there: it is read again.
        for batch in batches:
            for timed in batch.events:
                event = timed.event
                if isinstance(event, EngineStats) and not batch.is_history:
                    assert event.generation_tokens_per_second == event.requests_running, "a torn line"
                    assert event.requests_running <= self.number, "a value that nobody wrote"
                    self.read.append(event.requests_running)
                    self.read_since_save.append(event.requests_running)
                    if has_failed:  # How far a file was read then may not be known: a copy of it is read again.
                        self.repeatable.add(event.requests_running)
        self.positions = self.tail.positions()

    def fail(self):
        """Let the file system fail for some polls, from a call of the first one on if it is not just absent."""
        number = self.random.choice(FAILURES + ABSENCES)
        self.system.fail(number, 0 if number in ABSENCES else self.random.randint(0, 12))
        for _ in range(self.random.randint(1, 3)):
            self.poll()
            self.random.choice([self.write, self.save])()
        self.system.heal()

    def hang(self):
        """Let a call of a poll hang while the log goes on; then it answers or fails, or the daemon is killed."""
        brought = []
        self.now += 1
        self.pass_time()
        self.system.has_failed = False
        self.system.hang(self.random.randint(0, 12))
        poll = threading.Thread(target=lambda: brought.append(self.tail.poll(self.now)))
        poll.start()
        while poll.is_alive() and not self.system.is_hanging.wait(0.002):
            continue
        for _ in range(self.random.randint(0, 4)):
            self.random.choice([self.write, self.write_partial, self.save])()
        is_killed = poll.is_alive() and self.random.random() < 0.3
        self.system.answer(self.random.choice([None, *FAILURES]))
        poll.join(SECONDS)
        self.system.heal()
        if is_killed:
            self.kill()  # Nothing of what it was about to bring is known.
        else:
            self.take_in(brought[0])

    def save(self):
        """Write a checkpoint."""
        self.saved = self.positions
        if self.system is None or not self.system.has_failed:
            self.read_since_save = []  # Of a file that fails only what was so before is known.

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
            self.random.choice([self.write, self.write, self.rotate, self.recreate])()
        self.tail = LogTailer(str(self.followed), self.saved, self.wall)
        before = set(self.read)
        self.poll()
        counts = self.tail.status().tail
        if counts.files_lost or counts.truncations or any(position.offset == 0 for position in self.saved):
            self.repeatable |= before  # Which of the files were read can only be told by their times.
        self.save()

    def run(self):
        """Let it all happen."""
        actions = [self.write] * 6 + [self.poll] * 6 + [self.write_partial] * 2 + [self.save] * 2
        actions += [self.rotate] * 3 + [self.switch]
        actions += [self.truncate, self.delete, self.restart, self.kill, self.punch_hole]
        actions += [] if self.system is None else [self.fail, self.hang] * 2
        for _ in range(ACTIONS):
            self.random.choice(actions)()
        self.finish_partial()
        for _ in range(4):
            self.poll()
        self.tail.close()
        for file in (self.writer, *self.held):
            file.close()


@pytest.fixture(params=["a disk", "a file system that fails"])
def system(request, monkeypatch):
    """The file system: the real one, or one that fails and hangs now and then."""
    if request.param == "a disk":
        return None
    found = FileSystem()
    for module in (file_follower, log_file, log_tailer, rotation):
        monkeypatch.setattr(module, "os", found)
    return found


@pytest.mark.parametrize("batch", range(BATCHES))
def test_random_histories(batch, system):
    """T33: whatever happens to a log, no line is torn, none that can be reached is lost, and none is read twice."""
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        folder = tempfile.mkdtemp()
        try:
            history = History(folder, seed, system)
            history.run()
            lost = history.expected - set(history.read)
            twice = {n for n in set(history.read) if history.read.count(n) > 1} - history.repeatable
            assert not lost, f"seed {seed}: lost {sorted(lost)}"
            assert not twice, f"seed {seed}: twice {sorted(twice)}"
        finally:
            shutil.rmtree(folder)
