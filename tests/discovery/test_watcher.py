# SPDX-License-Identifier: Apache-2.0
"""Servers that come and go, over made-up process tables in made-up time: their names, and how long they are watched."""

from __future__ import annotations

import threading

import pytest
import structlog

from hypothesis import given
from hypothesis import strategies as st
from tests.support.proc_tree import ProcTree
from tests.support.waiting import SECONDS, HandClock, until

from vllm_watch.daemon.config.model import Config
from vllm_watch.daemon.discovery.processes import Proc, ProcFiles
from vllm_watch.daemon.discovery.serve_command import ServeCommand
from vllm_watch.daemon.discovery.servers import DiscoveredServer, with_names
from vllm_watch.daemon.discovery.watcher import FULL_POLL_SECONDS, KEEP_SECONDS, MAX_SERVERS, ServerWatcher, track
from vllm_watch.daemon.support import hang_guard
from vllm_watch.daemon.support.errors import DiscoveryError


pytestmark = pytest.mark.slow


SERVE = "vllm serve Qwen/Qwen3-8B"


class Following:
    """A watcher over a table that the test changes."""

    def __init__(self, folder):
        (folder / "host").mkdir()
        self.tree = ProcTree(folder / "proc", folder / "host")
        self.clock = HandClock()
        self.watcher = ServerWatcher(self.clock, Config(servers=()), self.tree.proc, self.tree.host)

    def poll(self, seconds=10.0, **how):
        """Look later; return what is watched, by name."""
        self.clock.time += seconds
        return {server.name: server for server in self.watcher.poll(**how).servers}

    def end(self, pid):
        """Let a process end."""
        for name in ("stat", "cmdline"):
            (self.tree.root / str(pid) / name).unlink()


@pytest.fixture
def following(tmp_path):
    """A watcher, and no server yet."""
    return Following(tmp_path)


def server(name, url=None, pid=1):
    """Return a server that was found."""
    return DiscoveredServer(pid, pid, name, "root", ServeCommand(), url, None, None, ())


class Hang:
    """Lets whoever reads what a process runs wait, as the kernel does while that process's memory is held."""

    def __init__(self, monkeypatch):
        self.over = threading.Event()
        self.asked = []
        read = ProcFiles.read

        def wait(files, pid, name):
            path = files.path(pid, name)
            if path.endswith(self.names):
                self.asked.append(path)
                self.over.wait(SECONDS)
            return read(files, pid, name)

        self.names = ()
        monkeypatch.setattr(ProcFiles, "read", wait)

    def begin(self, *names):
        """Let the reading of these files hang."""
        self.over.clear()
        self.names = names


@pytest.fixture
def hang(monkeypatch):
    """Files under the process table that hang; at the end they are read."""
    monkeypatch.setattr(hang_guard, "HANG_SECONDS", 1.0)
    found = Hang(monkeypatch)
    yield found
    found.over.set()


class TestHanging:
    """A process at which looking hangs costs only itself."""

    def test_the_others_are_found(self, following, hang):
        """A process that hangs from the start is passed over, said once, and found when it can be asked again."""
        following.tree.add(10, SERVE)
        following.tree.add(11, "vllm serve other/Model --port 8001")
        hang.begin("/10/cmdline")
        with structlog.testing.capture_logs() as said:
            found = [set(following.poll()) for _ in range(3)]
        hanging = following.watcher.hanging_count
        hang.over.set()
        until(lambda: following.watcher.hanging_count == 0)

        assert [{"Model:8001"}] * 3 == found
        assert 1 == hanging
        assert 1 == len(hang.asked)
        assert [10] == [entry["pid"] for entry in said if entry["event"] == "discovery.hangs"]
        assert {"Qwen3-8B:8000", "Model:8001"} == set(following.poll())

    @pytest.mark.parametrize("name", ["cmdline", "environ"])
    def test_a_server_that_hangs_is_watched_on(self, following, hang, name):
        """A server that is known and hangs is there, not gone: it is watched for as long as that lasts."""
        following.tree.add(10, SERVE)
        before = following.poll()
        hang.begin(f"/10/{name}")
        with structlog.testing.capture_logs() as said:
            found = [following.poll(fully=True), following.poll(KEEP_SECONDS + 1), following.poll(fully=True)]

        assert [before] * 3 == found
        assert not [entry for entry in said if entry["event"] == "discovery.gone"]


class TestComingAndGoing:
    """What is watched is what was there in the last hour."""

    def test_one_that_comes(self, following):
        """With none there is nothing to watch; one that is started is watched from the next look on."""
        assert {} == following.poll()

        following.tree.add(10, f"{SERVE} --max-num-seqs 24")
        (found,) = following.poll().values()

        assert ("Qwen3-8B:8000", "http://127.0.0.1:8000/metrics") == (found.name, found.metrics.url)
        assert (("max-num-seqs", "24"),) == found.command.flags

    def test_one_that_goes(self, following):
        """One that is gone is watched for an hour, as it was, and no longer."""
        following.tree.add(10, SERVE)
        before = following.poll()
        following.end(10)

        assert before == following.poll()
        assert before == following.poll(KEEP_SECONDS - 30)
        assert {} == following.poll(60)

    def test_a_second_of_the_same_model(self, following):
        """A server's name is the same before a neighbour comes, beside it, after it has gone, and for a new watcher."""
        following.tree.add(10, SERVE)
        assert {"Qwen3-8B:8000"} == set(following.poll())

        following.tree.add(20, f"{SERVE} --port 8001")
        assert {"Qwen3-8B:8000", "Qwen3-8B:8001"} == set(following.poll())

        following.end(10)
        following.poll()
        assert {"Qwen3-8B:8001"} == set(following.poll(KEEP_SECONDS + 10))
        assert ["Qwen3-8B:8001"] == [each.name for each in following.tree.find().servers]

    def test_another_model_at_the_same_address(self, following):
        """A server that is gone is not watched on where another one answers in its place."""
        following.tree.add(10, SERVE)
        following.poll()
        following.end(10)
        following.tree.add(20, "vllm serve other")

        assert {"other:8000"} == set(following.poll())

    def test_what_changes_meanwhile(self, following, tmp_path):
        """Of a server that runs on, a change is seen within a minute, or at once by a close look."""
        log = tmp_path / "vllm.log"
        log.write_text("")
        following.tree.add(10, SERVE)
        assert following.poll()["Qwen3-8B:8000"].log is None

        following.tree.output(10, log)
        assert following.poll()["Qwen3-8B:8000"].log is None
        assert str(log) == following.poll(fully=True)["Qwen3-8B:8000"].log

        renamed = log.rename(f"{log}.1")
        following.tree.output(10, renamed)
        assert str(renamed) == following.poll(FULL_POLL_SECONDS)["Qwen3-8B:8000"].log

    def test_nobody_takes_the_place_of_another_user(self):
        """Whoever starts processes by the hundred fills the places that are left, not those of other users' servers."""
        many = [server(f"fake-{number}", f"http://127.0.0.1:{1000 + number}/metrics", number) for number in range(300)]
        real = [server(f"m{number}", f"http://127.0.0.1:{9000 + number}/metrics", 5000 + number) for number in range(8)]
        found = with_names([*(each._replace(user="eve") for each in many), *real])
        watched = track({}, found, 1000.0)

        assert MAX_SERVERS == len(watched)
        assert {f"m{number}" for number in range(8)} <= watched.keys()

    def test_no_process_table(self, tmp_path):
        """Without a process table there is one sentence, and no traceback."""
        watcher = ServerWatcher(HandClock(), Config(servers=()), Proc(tmp_path / "none"))

        with pytest.raises(DiscoveryError, match="where the kernel lists processes, cannot be read: no such file"):
            watcher.poll()

    def test_what_is_said(self, following):
        """What was found, what is wrong with it, and that it is gone are said once each."""
        following.tree.add(10, SERVE)
        with structlog.testing.capture_logs() as entries:
            following.poll()
            following.poll()
            following.end(10)
            following.poll()
            following.poll()
        said = [(entry["event"], entry["log_level"]) for entry in entries]

        assert [
            ("discovery.found", "info"),
            ("discovery.advice", "info"),
            ("discovery.advice", "warning"),
            ("discovery.gone", "warning"),
            ("discovery.nothing", "info"),
        ] == said


class TestNames:
    """Names are unique and stay."""

    def test_the_model_and_the_port(self):
        """Of several that have one model and port the oldest has that name, and the others a number after it."""
        found = [server("m:8000", f"http://127.0.0.{pid}:8000/metrics", pid) for pid in (3, 1, 2)]
        named = with_names([server("m:8000"), *found])

        assert [(1, "m:8000"), (2, "m:8000-2"), (3, "m:8000-3"), (1, "m:8000-4")] == [
            (each.pid, each.name) for each in named
        ]

    @given(
        st.lists(st.builds(server, st.sampled_from(["m:1", "m:1-2", "n:1", "n"]), pid=st.integers(1, 3)), max_size=8)
    )
    def test_no_two_have_one_name(self, found):
        """Whatever runs, no two have one name, and whatever is alone has its own."""
        named = [each.name for each in with_names(found)]

        assert len(set(named)) == len(found)
        assert {each.name for each in found} <= set(named)
