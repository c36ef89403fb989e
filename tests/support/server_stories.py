# SPDX-License-Identifier: Apache-2.0
"""A server with a log and a page, both made up, and what happens to it as a story: what is written, read and seen."""

from __future__ import annotations

from vllm_watch.daemon.catalog.series import SERIES
from vllm_watch.daemon.reading.log_reader import LogReader, LogStatus, TailCounts
from vllm_watch.daemon.reading.times import ArrivalTimes
from vllm_watch.daemon.state.scrape_source import ScrapeResult
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch_parsers.scrape import Unreadable, read_metrics


BOTH, LOG, METRICS = {}, {"has_metrics": False}, {"has_log": False}
"""The sources of a server."""

READY = b"INFO:     Application startup complete."
STARTING = b"INFO 11-21 02:35:10 [api_server.py:1] vLLM API server version 0.9.2"
DEAD = b"ERROR 11-21 02:35:10 [core.py:1] EngineCore encountered a fatal error."


def page(running=0, waiting=0, generated=0, steps=0, deferred=0, kv=0.5, start=1.0, engine="0", prompt=0, extra=""):
    """Return a page with these values."""
    labels = f'engine="{engine}",model_name="m"'
    return (
        f"vllm:num_requests_running{{{labels}}} {running}\n"
        f"vllm:num_requests_waiting{{{labels}}} {waiting}\n"
        f'vllm:num_requests_waiting_by_reason{{{labels},reason="deferred"}} {deferred}\n'
        f"vllm:kv_cache_usage_perc{{{labels}}} {kv}\n"
        f"vllm:prompt_tokens_total{{{labels}}} {prompt}\n"
        f"vllm:generation_tokens_total{{{labels}}} {generated}\n"
        f'vllm:iteration_tokens_total_bucket{{{labels},le="+Inf"}} {steps}\n'
        f"vllm:iteration_tokens_total_sum{{{labels}}} {steps}\n"
        f"process_start_time_seconds {start}\n{extra}"
    ).encode()


def line(running=0, waiting=0, prompt=0.0, generation=0.0, engine="000", deferred=0):
    """Return a statistics line with these values."""
    more = f", Deferred: {deferred} reqs" if deferred else ""
    return (
        f"INFO 11-21 02:35:10 [loggers.py:118] Engine {engine}: Avg prompt throughput: {prompt} tokens/s, "
        f"Avg generation throughput: {generation} tokens/s, Running: {running} reqs, Waiting: {waiting} reqs{more}, "
        f"GPU KV cache usage: 25.0%, Prefix cache hit rate: 10.0%"
    ).encode()


class Server:
    """A server's state with a clock, driven by the test."""

    def __init__(self, has_log=True, has_metrics=True, interval=5.0, **settings):
        self.state = ServerState(ServerSettings("s", has_log, interval if has_metrics else None, **settings))
        self.state.apply_log_status(LogStatus(is_up=True, reason="ok", tail=TailCounts()))
        self.reader = LogReader()
        self.now = 1000.0

    def log(self, *lines, after=0.0, is_history=False):
        """Let lines be written, later."""
        self.now += after
        batch = self.reader.read(lines, ArrivalTimes(self.now))
        self.state.apply_log(batch._replace(is_history=is_history))
        return self

    def scrape(self, body=None, reason="refused", after=0.0):
        """Let the page be read, later, or not."""
        self.now += after
        reading = read_metrics(body) if body is not None else None
        if isinstance(reading, Unreadable):
            reading, reason = None, reading.reason
        self.state.apply_scrape(ScrapeResult(self.now, 0.01, reading, "ok" if reading else reason))
        return self

    def engine(self, after=0.0, index=0):
        """Return what is known of an engine, later."""
        self.now += after
        return self.state.snapshot(self.now).engines[index]

    def value(self, name, after=0.0):
        """Return a gauge and who said it, later."""
        reading = self.engine(after).gauges.get(name)
        return reading and (reading.value, reading.source)

    def reason(self, source):
        """Return why a source says what it says."""
        return next(s.reason for s in self.state.snapshot(self.now).sources if s.source == source)

    def tell(self, *story):
        """
        Let a story happen, and compare what is seen in it.

        Seconds pass, a page is read, lines are written (those of a tuple together), and a reason is why a page is not
        read. What is seen then: ``= stalled`` is the state, ``= down: killed`` with its cause, ``log = idle`` the
        reason of a source, ``engine_dead = 1`` how many failures of a kind the log has counted, ``requests = 200: 8``
        how many HTTP requests are counted by code, ``requests_running = 3 metrics`` a gauge and who said it.
        """
        for number, step in enumerate(story):
            if isinstance(step, (int, float)):
                self.now += step
            elif isinstance(step, tuple):
                self.log(*step)
            elif isinstance(step, bytes):
                self.scrape(step) if step.startswith(b"vllm:") else self.log(step)
            elif "= " not in step:
                self.scrape(reason=step)
            else:
                what, expected = step.split("= ")
                assert expected == self._seen(what.strip(), has_cause=":" in expected), (
                    f"step {number}, second {self.now - 1000}"
                )
        return self

    def _seen(self, what, *, has_cause):
        snapshot = self.state.snapshot(self.now)
        engine = snapshot.engines[0]
        if not what:
            return f"{engine.state}: {engine.cause}" if has_cause else engine.state
        if what == "requests":
            return ", ".join(f"{key.code}: {count:.0f}" for key, count in snapshot.http_requests.items())
        if snapshot.log and what in snapshot.log.events:
            return str(snapshot.log.events[what])
        if what in SERIES:
            reading = engine.gauges.get(what)
            return f"{reading.value:g} {reading.source}" if reading else "absent"
        return next(source.reason for source in snapshot.sources if source.source == what)
