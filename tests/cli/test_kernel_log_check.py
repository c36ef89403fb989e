# SPDX-License-Identifier: Apache-2.0
"""What `check` says of the kernel's log."""

from __future__ import annotations

from itertools import dropwhile

import pytest

from tests.parsers.kernel_lines import message_of

from vllm_watch.cli.commands import check as check_command
from vllm_watch.cli.commands.check import check, view_of
from vllm_watch.daemon.catalog.reasons import KERNEL_LOG
from vllm_watch.daemon.config.model import Config
from vllm_watch.daemon.config.server_config import ServerConfig
from vllm_watch.daemon.state.xid_events import KernelLine


AT = 1_790_000_000.0


class Log:
    """A kernel's log that has these messages."""

    has_more = False
    cursor = None

    def __init__(self, reason, *messages):
        self.reason = reason
        self.lines = [KernelLine(AT + 60 * number, message, is_history=True) for number, message in enumerate(messages)]
        self.is_closed = False

    def poll(self, _now):
        """Return the lines, once."""
        lines, self.lines = self.lines, []
        return lines

    def close(self):
        """Note it."""
        self.is_closed = True


@pytest.fixture
def checked(tmp_path, monkeypatch):
    """Return what `check` prints, and says to programs, of a machine with this log."""
    path = tmp_path / "vllm.log"
    path.write_text("INFO 11-21 02:14:20 [api_server.py:1289] vLLM API server version 0.9.2\n")
    config = Config(servers=(ServerConfig(name="a", log=str(path)),))

    def run(make):
        opened = []

        def open_log(**_arguments):
            opened.append(make())
            return opened[-1]

        monkeypatch.setattr(check_command, "place_of", lambda _config: "never" if make is None else "journal")
        monkeypatch.setattr(check_command, "KernelJournal", open_log)
        lines = list(dropwhile(lambda line: not line.text.startswith("kernel's log"), check(config)))
        view = view_of(config)
        assert all(log.is_closed for log in opened)
        return lines, view

    return run


def test_errors_since_the_boot_are_listed_with_what_to_do(checked):
    """Each error that the log has is there once, with its GPU and its age."""
    lines, _ = checked(lambda: Log("ok", message_of("row remapper"), message_of("GSP"), message_of("GSP")))

    assert lines[0].text == f"kernel's log (journal): ok. {KERNEL_LOG['ok'].text}"
    assert lines[1].text.startswith("  Xid 63 of 0000:9b:00: memory that will be replaced")
    assert lines[3].text.startswith("  Xid 119 of 0000:29:00: ")
    assert not any(line.is_wrong for line in lines)


def test_an_error_of_the_last_hour_after_which_a_gpu_needs_somebody_is_wrong(checked, monkeypatch):
    """One that only follows another error is not, whenever it was."""
    monkeypatch.setattr(check_command.time, "time", lambda: AT + 120)
    lines, view = checked(lambda: Log("ok", message_of("row remapper"), message_of("GSP")))

    assert [line.text for line in lines if line.is_wrong] == [lines[3].text]
    assert (view["ok"], view["problems"]) == (False, [lines[3].text.strip()])


def test_a_log_that_may_not_be_read_is_explained(checked):
    """The rights are named; the servers are watched without it, so nothing is wrong."""
    (line,), view = checked(lambda: Log("permission_denied"))

    assert line.text == f"kernel's log (journal): not read. {KERNEL_LOG['permission_denied'].text}"
    assert "systemd-journal" in line.text
    assert view["ok"]


def test_a_journal_that_prints_nothing_has_none_of_the_kernel_s_messages(checked, monkeypatch):
    """In a container journalctl waits for ever; `check` does not."""
    monkeypatch.setattr(check_command, "KERNEL_LOG_SECONDS", 0.1)
    (line,), _ = checked(lambda: Log("starting"))

    assert line.text.endswith(KERNEL_LOG["no_entries"].text)


def test_a_machine_without_gpus_is_told_nothing(checked):
    """There is no line about it, and nothing is read."""
    lines, _ = checked(None)

    assert lines == []
