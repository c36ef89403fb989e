# SPDX-License-Identifier: Apache-2.0
"""`daemon/METRICS.md`, made from the table of series."""

from __future__ import annotations

import sys

from vllm_watch.daemon.catalog.reasons import STALLED
from vllm_watch.daemon.catalog.series import GROUPS, PREFIX, STATE, Origin, Series, Source
from vllm_watch.daemon.catalog.states import DOWN, SLEEPING
from vllm_watch.daemon.state.engine_state import DOUBT_SECONDS, UNSEEN_SECONDS
from vllm_watch.daemon.state.server_life import FIRST_TOKEN_SECONDS
from vllm_watch.daemon.state.stall import FIRST_STEP_FACTOR, LOG_ONLY_FACTOR, REMOTE_FACTOR


_INTRODUCTION = f"""\
# Series

Generated from the code (`make generate`); a test checks that they agree. All names start with `{PREFIX}`. Ratios go
from 0 to 1 and times are in seconds. A value that is not known is absent: missing is not zero, and stale is not
current. Histograms have vLLM's own buckets.

"Scrape" is vLLM's /metrics, "log" is vLLM's log, and "probe" is a completion of one token that vllm-watch requests
regularly where that is configured. Where both the log and the scrape have a value, the scrape is used. A value older
than three of its source's intervals is removed. There are two exceptions: the last line of an idle engine holds, and
facts hold until the next start. Counters, histograms and objectives outlive the server: they keep their last value
until the server has started again, so nothing counted just before a crash is lost, however long the scrape interval
of Prometheus is. Only a restart of the daemon loses them, if the server is gone by then. They also keep their value
while only /metrics cannot be read: a rate of 0 then means nothing, and `source_up{{source="metrics"}}` shows why. They
are not removed, because what is counted in the gap would be missing from every window shorter than the gap.

The labels configured for a server (`labels:`) are added to those listed here.

A scrape gets what is known at that moment. The same holds for the JSON and the status page.
"""

_DOWN_REASONS = "\n".join(f"| `{reason}` | {meaning} |" for reason, meaning in DOWN.items())
_STALL_REASONS = "\n".join(f"| `{reason}` | {meaning} |" for reason, meaning in STALLED.items())

_WHEN_STALLED = f"""\
### When an engine is stalled

An engine is stalled if it has work and for `stall_after` (30 s), and in at least three scrapes, none of it is done: no
token, no engine step, no finished request, no transferred KV block, and no KV cache that fills during a prompt.
Preemptions, requests that come and go, and a KV cache whose use swings are no work done. Requests that all wait for
something remote (`requests_deferred`, with nothing running) are work where the engine has a KV connector, whose
counters show whether it moves; others wait for an adapter, a grammar or the next input of their session, and if that
lasts, VllmRequestsDeferred warns. A pooling model generates no tokens: its prompt tokens and finished requests are its
progress.

| reason | meaning |
|---|---|
{_STALL_REASONS}

Some healthy engines do not move for a while either, and get more time:

* {FIRST_STEP_FACTOR:g} times `stall_after` while no request has received a token since the engine was last idle. It may
  be one long step, for example a prompt without chunked prefill, or one whose chunks take that long.
* {LOG_ONLY_FACTOR:g} times `stall_after` after the last line with tokens, or the first one of the work, if only the log
  is read: vLLM prints nothing while it computes a single long prompt.
* {FIRST_TOKEN_SECONDS / 60:g} min for the first requests after a start, when kernels are compiled.
* {REMOTE_FACTOR:g} times `stall_after` while all requests wait for a KV connector.

Anything that takes longer is reported as stalled although it is not: a single step longer than `stall_after` after
tokens have been generated (kernels compiled late, a long prompt on a model without a KV cache). Raise `stall_after`
for such a server. An engine that hangs before it has registered a request looks idle: only a probe detects that.
"""

_WHEN_SLEEPING = f"""\
### When an engine is sleeping

{SLEEPING}

The sources are `vllm:engine_sleep_state` (0.11.1 and later), the server's count of calls to /pause and /resume, and
the log. The probe pauses meanwhile. Requests sent to the server are held and not visible: nothing runs, nothing
waits, and /health returns 200. When the server wakes, their whole wait counts, so the time to first token, the queue
time and the burn rate of an objective jump: exclude that time from baselines.

Not detected, and reported as stalled:

* a pause that appears neither in /metrics (no `http_requests_total`) nor in the log (no access lines, before 0.32);
* a pause from before the daemon started, if its line is not in the last 256 KiB of the log: the number of past pauses
  does not show whether the server is paused now;
* a pause and resume between two scrapes, if no log shows their order.
"""

_WHEN_DOWN = f"""\
### When an engine is down

Nothing listens at the address of /metrics, or the log ends with a fatal error or the end of the server. A server that
was never seen is down at once without a log; with one that has no line of its yet, {UNSEEN_SECONDS:g} s after the first
refused connection. If /metrics is read nevertheless, it is compared with the log:

* After the end of the server: if it answers {DOUBT_SECONDS:g} s later, it has not ended.
* After a fatal error the engine stays down until something is computed between two scrapes that were both made after it
  (a token, a step, a KV cache block, a finished request), until the server is started again, or until its log shows
  that it works. That /metrics answers is no proof: with `VLLM_KEEP_ALIVE_ON_ENGINE_DEATH=1` the API server of a dead
  engine stays, the values of /metrics do not change, requests get 500 and /health returns 503.

A client whose text is printed raw can forge such a line. An engine that has work shows within two scrapes that it
works; an idle one is down until its next request, or the next probe. If no log is read, a dead engine behind an API
server that stays looks idle, or stalled if requests were running: then, too, only a probe notices.

How it ended is the label `reason` of `vllm_watch_engine_down_info`; without a log only `never_answered` is known:

| Reason | Meaning |
|---|---|
{_DOWN_REASONS}
"""

_ORIGINS: dict[Origin, str] = {
    "metrics": "scrape",
    "log": "log",
    "probe": "probe",
    "gpu": "the GPU's driver",
    "kernel log": "the kernel's log",
    "command line": "the command line",
    "configuration": "configuration",
    "daemon": "the daemon",
}


def document() -> str:
    """Return the whole document."""
    parts = [_INTRODUCTION]
    for group in GROUPS:
        parts.append(f"## {group.title}\n")
        parts += [_entry(series) for series in group.series]
        if group is STATE:
            parts += [_WHEN_STALLED, _WHEN_SLEEPING, _WHEN_DOWN]
    return "\n".join(parts)


def _entry(series: Series) -> str:
    labels = ", ".join(f"`{label}`" for label in series.labels) or "none"
    return (
        f"### `{series.full_name}`\n\n"
        f"{series.help}\n\n"
        f"* Type: {series.type} · unit: {series.unit} · labels: {labels}\n"
        f"* From: {_sources_text(series)}\n"
    )


def _sources_text(series: Series) -> str:
    """Return where a series comes from, in the order of preference."""
    texts = [_source_text(source) for source in series.sources]
    if series.combine == "latest":
        return f"the later of {' and '.join(texts)}"
    return {"first": "; else ", "each": " and ", "all": " together with "}[series.combine].join(texts)


def _source_text(source: Source) -> str:
    name = _ORIGINS[source.origin]
    if not source.what:
        return name
    return f"{name} {source.what}" if source.origin == "command line" else f"{name}: {source.what}"


if __name__ == "__main__":
    sys.stdout.write(document())
