# SPDX-License-Identifier: Apache-2.0
"""The kernel's log: what counts and what is history, from the journal; nobody else's text counts."""

from __future__ import annotations

import pytest

from tests.sources.journals import JournalProgram, journal_entry

from vllm_watch.daemon.sources.journalctl import SETTLED_AFTER
from vllm_watch.daemon.sources.kernel_log import KernelJournal, has_gpu_driver


START = 1_795_000_000.0
XID = "NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus."


def kernel_entry(number, at, message=XID, transport="kernel", facility="0"):
    """Return an entry of the kernel as journalctl prints it."""
    return journal_entry(message, number, at, _TRANSPORT=transport, SYSLOG_FACILITY=facility)


class Journal(JournalProgram):
    """The kernel's journal as a test fills it, and what reads it."""

    def __init__(self, folder, cursor=None):
        super().__init__(folder)
        self.log = KernelJournal(cursor=cursor, command=self.command)
        self.now = START
        self.found = []

    def poll(self, seconds=0.0):
        """Poll once; keep by each message how many seconds after the start it was, and whether it is history."""
        self.now += seconds
        self.found += [(line.at - START, line.is_history) for line in self.log.poll(self.now)]


@pytest.fixture
def journals(tmp_path):
    """Make journals, each read from a cursor, and end their programs."""
    made = []

    def make(cursor=None):
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(Journal(folder, cursor))
        return made[-1]

    yield make
    for each in made:
        each.log.close()


def test_what_was_before_the_first_start_is_history(journals):
    """The journal is read from the machine's boot on; only what comes after the start counts."""
    journal = journals()
    journal.prints(kernel_entry(1, START - 5000), kernel_entry(2, START - 1))
    journal.poll_until(lambda: journal.log.cursor == "c2")
    journal.now += 5
    journal.prints(kernel_entry(3, START + 4))
    journal.poll_until(lambda: journal.log.cursor == "c3")

    assert [(-5000, True), (-1, True), (4, False)] == journal.found
    assert "ok" == journal.log.reason
    arguments, locale, _ = journal.called_with()
    assert {"--dmesg", "--follow", "--no-tail", "--output=json"} < set(arguments)
    assert "C" == locale


def test_a_restart_counts_what_came_meanwhile_and_nothing_twice(journals):
    """What an earlier run of the daemon has read is history, up to its cursor; until then that cursor is kept."""
    journal = journals("c2")
    journal.prints(kernel_entry(1, START - 50))
    journal.poll_until(lambda: journal.found)
    assert "c2" == journal.log.cursor

    journal.prints(kernel_entry(2, START - 40), kernel_entry(3, START - 30))
    journal.poll_until(lambda: journal.log.cursor == "c3")
    assert [(-50, True), (-40, True), (-30, False)] == journal.found


def test_a_cursor_of_another_boot_is_not_waited_for(journals):
    """If the cursor is not in the journal, all from before the start is history, and what follows counts."""
    journal = journals("c99")
    journal.prints(kernel_entry(1, START - 50))
    journal.poll_until(lambda: journal.found)
    journal.poll(SETTLED_AFTER)
    assert "c1" == journal.log.cursor

    journal.prints(kernel_entry(2, START + 20))
    journal.poll_until(lambda: journal.log.cursor == "c2")
    assert [(-50, True), (20, False)] == journal.found


def test_others_messages_are_not_the_kernel_s(journals):
    """A program that logs the text of an Xid, or root that writes it to /dev/kmsg, makes no message of the kernel."""
    journal = journals()
    journal.prints(
        kernel_entry(1, START + 1, transport="syslog"),
        kernel_entry(2, START + 1, transport="stdout", facility="3"),
        kernel_entry(3, START + 1, facility="1"),
        journal_entry(XID, 4, START + 1),
        b"-- Boot --\n",
        kernel_entry(5, START + 2, message=list(XID.encode())),
    )
    journal.poll_until(lambda: journal.log.cursor == "c5")

    assert [(2, False)] == journal.found


def test_a_journal_without_the_kernel_has_a_reason(journals):
    """In a container journalctl waits and prints nothing; before it has shown that there is no reason."""
    journal = journals()
    assert "starting" == journal.log.reason
    journal.poll_until(journal.has_started)
    journal.poll(SETTLED_AFTER)

    assert "no_entries" == journal.log.reason


def test_a_driver_shows_whether_there_are_gpus(tmp_path):
    """Either driver that computes is enough; a graphics card alone is not."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "dri").mkdir()
    assert not has_gpu_driver(str(tmp_path))
    (tmp_path / "dev" / "kfd").touch()

    assert has_gpu_driver(str(tmp_path))
