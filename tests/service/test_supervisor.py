# SPDX-License-Identifier: Apache-2.0
"""The service in this process: its reload, its notifications, its page when a server fails, its times."""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
import threading
import time
import urllib.request

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
import structlog

from prometheus_client.parser import text_string_to_metric_families as parse_text
from tests.support.exposition import values_of
from tests.support.http_servers import StandIn, answer
from tests.support.logs import printed_now
from tests.support.waiting import SECONDS, until

from vllm_watch.daemon.config.config_file import load_config
from vllm_watch.daemon.service import service_thread as liveness_module
from vllm_watch.daemon.service.supervisor import Supervisor
from vllm_watch.daemon.sources.directory_watcher import DirectoryWatcher
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.support.clock import SystemClock
from vllm_watch_parsers.events import EngineStats


pytestmark = pytest.mark.slow


DAY = 86_400.0
STATS = (
    "INFO 11-21 02:14:25 [loggers.py:257] Engine 000: Avg prompt throughput: 11.0 tokens/s, "
    "Avg generation throughput: 22.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, "
    "GPU KV cache usage: 3.0%, Prefix cache hit rate: 0.0%\n"
)
LAST = 999_999
"""More requests than any other line has."""
STARTING = "INFO 11-21 02:14:20 [api_server.py:1289] vLLM API server version 0.9.2\n"
PAGE = b"""\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 0.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} 5.0
"""


class Told:
    """Stands for the notifier and keeps what it is told."""

    interval = None
    is_heard = True

    def __init__(self):
        self.said = []

    def status(self, line):
        """Keep a status."""
        if f"STATUS={line}" not in self.said:
            self.said.append(f"STATUS={line}")

    def ready(self):
        """Keep it."""
        self.said.append("READY")

    def reloading(self):
        """Keep it."""
        self.said.append("RELOADING")

    def stopping(self):
        """Keep it."""
        self.said.append("STOPPING")

    def alive(self):
        """Keep it."""
        self.said.append("WATCHDOG")


class SteppedWall(SystemClock):
    """A machine whose wall clock is corrected."""

    ahead = 0.0

    def wall(self, moment):
        """Return the corrected time."""
        return moment + self.ahead


class Watch:
    """A service and the file it is configured by."""

    def __init__(self, folder: Path, clock=None):
        self.folder = folder
        self.file = folder / "config.yml"
        self.told = Told()
        self.clock = clock or SystemClock()
        self.service = None

    def write(self, *servers, listen="127.0.0.1:0", checkpoint=None):
        """Write the configuration: each server is a name, whose log is named so, or lines of YAML."""
        lines = [f"listen: {listen}", *([f"checkpoint: {checkpoint}"] if checkpoint else []), "servers:"]
        lines += [f"- {{name: {each}, log: {each}.log}}" if each.isalnum() else f"- {each}" for each in servers]
        self.file.write_text("\n".join(lines) + "\n")

    def log(self, name, text=STATS):
        """Append to a server's log."""
        with (self.folder / f"{name}.log").open("a") as file:
            file.write(printed_now(text))

    def make(self):
        """Return a service that is not started."""
        load = lambda: load_config(str(self.file))  # noqa: E731 - As the command line has it.
        return Supervisor(load(), self.clock, load=load, notifier=self.told)

    def start(self):
        """Begin to watch."""
        self.service = self.make()
        self.service.start()
        return self.service

    def ready(self):
        """Begin to watch, and wait until every source was read."""
        service = self.start()
        until(lambda: service.fleet.is_ready)
        return service

    def reload(self):
        """Ask for a reload and let the main thread do it."""
        self.service.request_reload()
        self.service.tick()

    def page(self):
        """Return /metrics' values by name and the labels' values, in the order of the labels' names."""
        return values_of(self.service.endpoints.metrics("").body.decode())


def changes_in(page):
    """Return the times of changes of flags on a page, by the flag, the old value, the server and the new value."""
    name = "server_config_change_timestamp_seconds"
    return {
        labels: value for (series, *_), labels, value in ((key, key[1:], page[key]) for key in page) if series == name
    }


@pytest.fixture
def watch(tmp_path):
    """A service that is not yet started, with two servers' logs."""
    found = Watch(tmp_path)
    found.write("a", "b")
    found.log("a")
    found.log("b")
    yield found
    if found.service is not None:
        found.service.stop()


class TestNotifications:
    """systemd hears of it when it is so, not before."""

    def test_ready_is_said_once_every_source_was_looked_at(self, watch):
        """D1: READY comes after the first look and once, the state follows, STOPPING comes first of the end."""
        with StandIn(lambda _: [answer(PAGE)]) as server:
            watch.write("a", f"{{name: m, metrics: {server.url!r}}}")
            service = watch.ready()
            service.tick()
            service.tick()

        assert ["READY", "STATUS=a serving, m idle"] == [word for word in watch.told.said if word != "WATCHDOG"]
        service.stop()
        assert "STOPPING" == watch.told.said[-1]

    def test_ready_is_not_said_before_the_first_look(self, watch):
        """D1: a server that has not answered yet holds READY back, and is a status already."""
        with StandIn(lambda _: [], pause=0.0) as server:
            watch.write(f"{{name: m, metrics: {{url: {server.url!r}, timeout: 4s}}}}")
            service = watch.start()
            service.tick()

            assert not service.fleet.is_ready
            assert ["STATUS=m unknown", "WATCHDOG"] == watch.told.said
            service.stop()

    def test_a_stuck_thread_ends_the_signs_of_life(self, watch, monkeypatch):
        """D2: while a thread hangs no sign of life is given, and the thread is named; they come again afterwards."""
        service = watch.ready()
        stuck, released = threading.Event(), threading.Event()

        def hang(_tail):
            stuck.set()
            released.wait(SECONDS)
            return False

        monkeypatch.setattr(service.fleet.servers[0].log, "poll", lambda: hang(None))
        monkeypatch.setattr(liveness_module, "STALE_HEARTBEAT", 0.3)
        assert stuck.wait(SECONDS)
        until(lambda: service.threads.tail.heartbeat.age() > 0.3)
        watch.told.said.clear()
        service.liveness.web.beat()
        service.threads.scrapes.heartbeat.beat()
        service.tick()
        hanging = service.liveness.stale()
        released.set()
        monkeypatch.undo()
        until(lambda: not service.liveness.stale())
        said = list(watch.told.said)
        service.tick()

        assert "tail" in hanging
        assert "WATCHDOG" not in said
        assert "WATCHDOG" in watch.told.said


class TestReload:
    """A reload is whole or not at all (D4)."""

    def test_unchanged_servers_go_on_as_they_are(self, watch):
        """D4: a kept server keeps its counts, a new one begins, one that is gone is gone from the page."""
        service = watch.ready()
        watch.log("a", STATS * 3)
        until(lambda: watch.page()["log_lines_total", "a"] == 3)
        kept = service.fleet.servers[0]
        watch.log("c")
        watch.write("c", "a")
        watch.reload()
        until(lambda: service.fleet.is_ready)
        page = watch.page()

        assert kept is service.fleet.servers[1]
        assert not kept.log._is_closed
        assert 3 == page["log_lines_total", "a"]
        assert 1 == page["source_up", "c", "log"]
        assert not [key for key in page if "b" in key[1:]]
        assert (1, 0) == (page["config_last_reload_successful",], page["config_reload_failures_total",])

    def test_a_line_is_read_without_a_hint(self, watch, monkeypatch):
        """T24: on a file system that sends no events a log is polled, and says so."""
        monkeypatch.setattr(DirectoryWatcher, "watch", lambda *_: None)
        service = watch.start()
        until(lambda: service.fleet.is_ready)
        watch.log("a")

        until(lambda: watch.page()["log_lines_total", "a"] == 1)
        assert watch.page()["log_watch_info", "poll", "a"] == 1

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("listen: 127.0.0.1:0\nservers: [{name: a, lgo: x}]\n", 'unknown key "lgo"'),
            ("{", "config.yml"),
            (None, "config.yml"),
            (
                "listen: 127.0.0.1:1\nservers: [{name: z, log: z.log}]\n",
                '"listen" has changed: restart vllm-watch to apply it',
            ),
        ],
        ids=["unknown key", "no YAML", "vanished", "listen changed"],
    )
    def test_a_bad_file_changes_nothing(self, watch, text, words):
        """D4: a bad file is refused with one warning, counted, and everything stays as it was."""
        service = watch.ready()
        servers = service.fleet.servers
        if text is None:
            watch.file.unlink()
        else:
            watch.file.write_text(text)
        before = watch.page()["config_last_reload_success_timestamp_seconds",]
        with structlog.testing.capture_logs() as logged:
            watch.reload()
        page = watch.page()
        (warning,) = [entry for entry in logged if entry["event"] == "config.rejected"]

        assert words in warning["reason"]
        assert "warning" == warning["log_level"]
        assert servers == service.fleet.servers
        assert (0, 1) == (page["config_last_reload_successful",], page["config_reload_failures_total",])
        assert before == page["config_last_reload_success_timestamp_seconds",]

    def test_a_folder_of_servers_is_read_again(self, watch):
        """D4: a file more and a file less in `servers_dir` are a server more and a server less; the others go on."""
        folder = watch.folder / "servers.d"
        folder.mkdir()
        watch.file.write_text("listen: 127.0.0.1:0\nservers_dir: servers.d\n")
        for name in "ab":
            (folder / f"{name}.yml").write_text(f"log: ../{name}.log")
        service = watch.start()
        kept = service.fleet.servers[0]
        (folder / "b.yml").unlink()
        (folder / "c.yml").write_text("log: ../c.log")
        watch.reload()

        assert ["a", "c"] == [server.name for server in service.fleet.servers]
        assert kept is service.fleet.servers[0]


def _asked(service, path="/metrics"):
    """Return what a client gets, as text."""
    with urllib.request.urlopen(f"http://127.0.0.1:{service.port}{path}", timeout=SECONDS) as response:
        return response.status, response.read().decode()


class TestPage:
    """The page as it comes over HTTP."""

    def test_only_the_last_hours_that_are_asked_for(self, watch):
        """Of many servers the last hours are megabytes: who names servers gets theirs, and all else of every server."""
        service = watch.ready()
        every, one, none, gone = (
            msgspec.json.decode(service.endpoints.snapshot(names).body)["servers"]
            for names in (None, {"b"}, {""}, {"b", "gone"})
        )

        assert [["t" in server.get("history", {}) for server in shown] for shown in (every, one, none, gone)] == [
            [True, True],
            [False, True],
            [False, False],
            [False, True],
        ]
        assert all("engines" in server for server in none)
        assert all(("events" in server) is ("history" in server) for shown in (every, one, none) for server in shown)

    def test_fifty_clients_at_once(self, watch):
        """S9: each of 50 clients at once gets one moment's values, and the server is asked no more often for it."""
        numbers = itertools.count(1)
        shown = re.compile(r"(?m)^vllm_watch_(?:requests_running|requests_waiting|generation_tokens_total)\{.* (\S+)$")

        def body(_):
            number = next(numbers)
            return [answer(re.sub(rb"(?m) [0-9.]+$", b" %d" % number, PAGE))]

        with StandIn(body) as server:
            watch.write(f"{{name: m, metrics: {{url: {server.url!r}, interval: 1s, timeout: 1s}}}}")
            service = watch.ready()
            before, started = len(server.requests), time.monotonic()
            with ThreadPoolExecutor(50) as clients:
                pages = list(clients.map(lambda _: _asked(service), range(100)))
                while len({each[0] for each in map(shown.findall, (text for _, text in pages)) if each}) < 3:
                    pages += clients.map(lambda _: _asked(service), range(50))
            scrapes, seconds = len(server.requests) - before, time.monotonic() - started
            service.stop()

        values = [shown.findall(text) for _, text in pages]
        assert {200} == {status for status, _ in pages}
        # While a scrape of this busy process is too late there are no gauges; the counter stays.
        assert {0, 1, 3} >= {len(each) for each in values}
        assert 1 == max(len(set(each)) for each in values)
        assert scrapes <= seconds + 2  # One of before may be counted late.

    def test_its_names_and_labels(self, watch):
        """E1: everything on the page has the prefix, help, a type and base units, counters _total, and no colon."""
        with StandIn(lambda _: [answer(PAGE)]) as server:
            watch.write(f"{{name: m, log: a.log, metrics: {server.url!r}}}", checkpoint="state.json")
            service = watch.ready()
            _, text = _asked(service)
            service.stop()
        families = list(parse_text(text))

        assert {"gauge", "counter", "histogram"} >= {family.type for family in families}
        for family in families:
            names = {sample.name for sample in family.samples}
            assert family.name.startswith(("vllm_watch_", "process_")), family.name
            assert family.documentation.strip(), family.name
            assert names, family.name
            assert not [name for name in names if ":" in name or re.search(r"_(ms|milli|percent|kb|mb|minutes)", name)]
            assert family.type != "counter" or all(name.endswith("_total") for name in names)
            assert family.type == "counter" or not any(name.endswith("_total") for name in names)
            assert not [sample for sample in family.samples if "type" in sample.labels or sample.timestamp]
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        assert len(lines) == len({line.rpartition(" ")[0] for line in lines})


def _fail():
    raise RuntimeError("broken")


class TestFailures:
    """One server that fails never empties a page (E3)."""

    @pytest.mark.parametrize(
        "of_a",
        [_fail, {"version": object()}, {"version": "caf\udce9"}, {"engines": None}],
        ids=["raises", "no text", "a text that no format has", "no engines"],
    )
    def test_the_others_are_shown(self, watch, monkeypatch, of_a):
        """E3: what fails for one server, or cannot be written, costs the other nothing, and is logged and counted."""
        service = watch.ready()
        snapshot = service.fleet.servers[0].snapshot
        broken = of_a if callable(of_a) else lambda: snapshot()._replace(**of_a)
        monkeypatch.setattr(service.fleet.servers[0], "snapshot", broken)
        with structlog.testing.capture_logs() as logged:
            (status, text), (status_of_page, _) = _asked(service, "/api/v1/snapshot"), _asked(service)
            page = watch.page()

        assert (200, 200) == (status, status_of_page)
        assert ["b"] == [server["name"] for server in json.loads(text)["servers"]]
        assert 1 == page["source_up", "b", "log"]
        assert (True, 0) == (page["collect_errors_total", "a"] >= 1, page["collect_errors_total", "b"])
        assert {"a"} == {entry["server"] for entry in logged if entry["event"] == "collect.failed"}


class TestTimes:
    """A wall clock that is corrected by a day expires nothing and shows no wrong times (T30)."""

    @pytest.mark.parametrize("step", [DAY, -DAY], ids=["forward", "back"])
    def test_what_leaves_the_process_is_wall_time(self, tmp_path, step):
        """T30: after the correction every timestamp shown is the corrected clock's, and every value is still there."""
        clock = SteppedWall()
        watch = Watch(tmp_path, clock)
        watch.write("a")
        watch.log("a", "")
        service = watch.ready()
        watch.log("a", STATS)
        until(lambda: ("requests_running", "0", "", "a") in watch.page())
        names = {name for name, *_ in watch.page()}
        clock.ahead = step
        service.tick()
        page, view = watch.page(), msgspec.json.decode(service.endpoints.snapshot().body)
        (server,) = view["servers"]
        (engine,) = server["engines"]
        moments = [
            view["at"],
            *server["history"]["t"],
            server["sources"][0]["last_reading"],
            engine["gauges"]["requests_running"]["at"],
            page["source_last_reading_timestamp_seconds", "a", "log"],
            page["last_token_timestamp_seconds", "0", "", "a"],
            page["config_last_reload_success_timestamp_seconds",],
        ]
        service.stop()

        assert names == {name for name, *_ in page}
        assert 1 == page["engine_state", "0", "", "a", "serving"]
        assert all(abs(moment - (clock.now() + step)) < 60 for moment in moments)


# Prints one line, after the cursor if one is given, and waits.
JOURNALCTL = """\
#!{python}
import json, os, sys, time
if "--reverse" in sys.argv:
    print(json.dumps(dict(__CURSOR="c1", __REALTIME_TIMESTAMP="1", MESSAGE={start!r})))
    sys.exit()
cursor = [word.partition("=")[2] for word in sys.argv if word.startswith("--after-cursor=")]
number = int(cursor[0][1:]) + 1 if cursor else 1
now = str(int(time.time() * 1e6))
line = {stats!r}.replace("Running: 1", f"Running: {{number}}").strip()
print(json.dumps(dict(__CURSOR=f"c{{number}}", __REALTIME_TIMESTAMP=now, MESSAGE=line)), flush=True)
while os.getppid() == {parent}:
    time.sleep(0.01)
"""


class TestCheckpoint:
    """A daemon goes on where the one before it stopped."""

    def test_lines_written_while_it_was_down_are_read_once(self, watch):
        """What was written between an end and the next start is counted, and nothing from before is."""
        watch.write("a", checkpoint="state.json")
        service = watch.ready()
        watch.log("a")
        until(lambda: watch.page()["log_lines_total", "a"] == 1)
        service.stop()
        watch.log("a")
        watch.log("a")

        service = watch.start()

        until(lambda: service.fleet.is_ready and watch.page()["log_lines_total", "a"] >= 2)
        assert watch.page()["log_lines_total", "a"] == 2
        assert watch.page()["checkpoint_info", "ok"] == 1

    def test_a_log_that_is_not_there_yet_keeps_its_position(self, watch):
        """A log that is missing for the whole of a run, as before its disk is mounted, is gone on with in the next."""
        watch.write("a", checkpoint="state.json")
        service = watch.ready()
        service.stop()
        (watch.folder / "a.log").rename(watch.folder / "away")
        service = watch.ready()
        service.stop()
        (watch.folder / "away").rename(watch.folder / "a.log")
        watch.log("a")

        watch.start()

        until(lambda: watch.page().get(("log_lines_total", "a")) == 1)

    def test_a_damaged_checkpoint_is_named_and_the_log_is_read_as_on_a_first_start(self, watch):
        """Half a file is refused with its reason; the server's state is known all the same."""
        watch.write("a", checkpoint="state.json")
        (watch.folder / "state.json").write_text('{"version": 1, "writ')
        with structlog.testing.capture_logs() as entries:
            watch.ready()

        assert watch.page()["checkpoint_info", "not_json"] == 1
        assert [entry["reason"] for entry in entries if entry["event"] == "checkpoint.loaded"] == ["not_json"]
        assert watch.page()["source_up", "a", "log"] == 1

    def test_a_change_of_flags_is_logged_once_and_outlives_the_daemon(self, watch):
        """A start with other flags is in the daemon's log, and the next run shows it without logging it again."""
        start = (
            "INFO 11-21 02:35:10 [api.py:1] vLLM API server version 0.14.1\n"
            "INFO 11-21 02:35:10 [api.py:1] non-default args: {{'model': 'm', 'max_num_seqs': {}}}\n"
            "INFO:     Application startup complete.\n"
        )
        watch.write("a", checkpoint="state.json")
        watch.log("a", start.format(8))
        with structlog.testing.capture_logs() as entries:
            service = watch.ready()
            watch.log("a", start.format(24))
            until(lambda: changes_in(watch.page()))
            found = changes_in(watch.page())
            service.tick()
            service.tick()
            service.stop()
            watch.log("a", STATS * 2_000)  # The first start is no longer among the last lines.
            service = watch.ready()
            service.tick()

        assert [("max-num-seqs", "8", "a", "24")] == list(found) == list(changes_in(watch.page()))
        assert list(found.values()) == pytest.approx(list(changes_in(watch.page()).values()), abs=2)
        logged = [entry for entry in entries if entry["event"] == "server.config_changed"]
        assert [("a", "max-num-seqs 8 -> 24")] == [(entry["server"], entry["changes"]) for entry in logged]

    def test_a_checkpoint_that_cannot_be_saved_is_counted_and_said_once(self, watch):
        """T25: without its folder the daemon goes on reading; each attempt is counted, the first is in the log."""
        watch.write("a", checkpoint="nowhere/state.json")
        with structlog.testing.capture_logs() as entries:
            service = watch.ready()
            service.tick()
            watch.log("a")
            until(lambda: watch.page()["log_lines_total", "a"] == 1)
            failures = watch.page()["checkpoint_failures_total",]
            service.stop()

        assert failures == 1
        assert watch.page()["checkpoint_failures_total",] == 2
        assert sum(entry["event"] == "checkpoint.failed" for entry in entries) == 1

    def test_a_server_that_is_configured_anew_goes_on_where_it_was(self, watch, monkeypatch):
        """D4: through reloads that change a server, beside a writer, each line is taken in once and in order."""
        seen = []
        apply = ServerState.apply_log

        def note(state, batch):
            if not batch.is_history:
                seen.extend(each.event.requests_running for each in batch.events if isinstance(each.event, EngineStats))
            apply(state, batch)

        monkeypatch.setattr(ServerState, "apply_log", note)
        # A poll that takes longer counts as hanging: its lines go to the old state, which is gone, and to the new one.
        monkeypatch.setattr("vllm_watch.daemon.service.log_polling.CLOSE_SECONDS", SECONDS)
        watch.write("a")
        service = watch.ready()
        written = []
        is_enough = threading.Event()

        def write():
            with (watch.folder / "a.log").open("a") as file:
                while not is_enough.is_set():
                    written.append(len(written))
                    line = STATS.replace("Running: 1 ", f"Running: {written[-1]} ")
                    # In two writes, so that a reload may come in the middle of a line.
                    for part in (line[:90], line[90:]):
                        file.write(part)
                        file.flush()
                    if len(written) % 50 == 0:
                        is_enough.wait(0.002)

        writer = threading.Thread(target=write)
        writer.start()
        for number in range(20):
            watch.write(f"{{name: a, log: a.log, stall_after: {31 + number}}}")
            watch.reload()
            taken_in = len(seen)
            until(lambda before=taken_in: service.fleet.snapshots() and len(seen) > before)
        is_enough.set()
        writer.join(SECONDS)
        written.append(LAST)  # What was read twice comes before it.
        watch.log("a", STATS.replace("Running: 1 ", f"Running: {LAST} "))
        until(lambda: service.fleet.snapshots() and seen[-1:] == written[-1:])

        assert written == seen

    def test_the_journal_is_a_source_and_its_cursor_is_kept(self, watch, monkeypatch):
        """A unit's lines give the gauges; the next run asks for what comes after the last line of this one."""
        programs = watch.folder / "programs"
        programs.mkdir()
        program = programs / "journalctl"
        program.write_text(
            JOURNALCTL.format(python=sys.executable, stats=STATS, start=STARTING.strip(), parent=os.getpid())
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        watch.write("{name: a, log: {journal: vllm.service}}", checkpoint="state.json")
        service = watch.start()
        until(lambda: any(n == "requests_running" and v == 1 for (n, *_), v in watch.page().items()))
        service.stop()

        watch.start()

        until(lambda: any(n == "requests_running" and v == 2 for (n, *_), v in watch.page().items()))
        assert any(n == "server_info" and "0.9.2" in labels for n, *labels in watch.page())
