# SPDX-License-Identifier: Apache-2.0
"""A small program that stands in for journalctl, and prints what the test wrote down."""

from __future__ import annotations

import itertools
import json
import os
import sys
import textwrap

from tests.support.waiting import until


# Prints the files of its folder named out-<run>-<piece> as they appear, then does what the file end-<run> says. Asked
# for history, it prints the file named history and ends, unless there is a file named hang.
FAKE = """
    import json, os, sys, time
    folder = {folder!r}
    if "--reverse" in sys.argv:
        with open(os.path.join(folder, "asked"), "a") as file:
            file.write(" ".join(sys.argv[1:]) + "\\n")
        path = os.path.join(folder, "history")
        if os.path.exists(path):
            with open(path, "rb") as file:
                sys.stdout.buffer.write(file.read())
            sys.stdout.buffer.flush()
        while os.path.exists(os.path.join(folder, "hang")) and os.getppid() == {parent}:
            time.sleep(0.005)
        sys.exit()
    run = len([name for name in os.listdir(folder) if name.startswith("arguments-")])
    with open(os.path.join(folder, "new"), "w") as file:
        json.dump([sys.argv[1:], os.environ.get("LC_ALL"), os.readlink("/proc/self/fd/0")], file)
    os.rename(os.path.join(folder, "new"), os.path.join(folder, f"arguments-{{run}}"))
    piece = 0
    while os.getppid() == {parent}:
        path = os.path.join(folder, f"out-{{run}}-{{piece}}")
        if os.path.exists(path):
            with open(path, "rb") as file:
                sys.stdout.buffer.write(file.read())
            sys.stdout.buffer.flush()
            piece += 1
        elif os.path.exists(os.path.join(folder, f"end-{{run}}")):
            with open(os.path.join(folder, f"end-{{run}}")) as file:
                sys.exit(file.read() or 0)
        else:
            time.sleep(0.005)
"""


def journal_entry(message, number, at, **fields):
    """Return an entry as journalctl prints it; its cursor is `number` after a c."""
    content = {"__CURSOR": f"c{number}", "__REALTIME_TIMESTAMP": str(int(at * 1e6)), "MESSAGE": message, **fields}
    return json.dumps(content).encode() + b"\n"


class JournalProgram:
    """
    The program, in a folder of its own.

    Attributes:
        command: How it is called, instead of journalctl.
    """

    def __init__(self, folder):
        self.folder = folder
        script = folder / "journalctl.py"
        script.write_text(textwrap.dedent(FAKE.format(folder=str(folder), parent=os.getpid())))
        self.command = (sys.executable, "-S", "-E", str(script))
        self._pieces = {}

    def poll_until(self, condition):
        """Let what reads it poll again and again, at one time of the clock, until the condition holds."""

        def is_so():
            self.poll()
            return condition()

        until(is_so)

    def prints(self, *lines, run=0):
        """Let a run of the program print lines."""
        piece = self._pieces.setdefault(run, itertools.count())
        path = self.folder / f"out-{run}-{next(piece)}"
        path.with_suffix(".new").write_bytes(b"".join(lines))
        path.with_suffix(".new").rename(path)

    def remembers(self, *lines):
        """Let it print lines, given the oldest first, when it is asked for those up to a cursor."""
        self.folder.joinpath("history").write_bytes(b"".join(reversed(lines)))

    def asked(self):
        """Return how it was asked for history."""
        path = self.folder / "asked"
        return path.read_text().splitlines() if path.exists() else []

    def ends(self, complaint="", run=0):
        """Let a run end when it has printed everything."""
        self.folder.joinpath("end.new").write_text(complaint)
        self.folder.joinpath("end.new").rename(self.folder / f"end-{run}")

    def has_started(self, run=0):
        """Return whether a run has started."""
        return (self.folder / f"arguments-{run}").exists()

    def called_with(self, run=0):
        """Return what a run was called with, its locale and its standard input."""
        return json.loads((self.folder / f"arguments-{run}").read_text())
