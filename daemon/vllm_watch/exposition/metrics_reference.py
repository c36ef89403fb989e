# SPDX-License-Identifier: Apache-2.0
"""`daemon/METRICS.md`, made from the table of series."""

from __future__ import annotations

import sys

from vllm_watch.catalog.reasons import STALLED
from vllm_watch.catalog.series import GROUPS, PREFIX, STATE, Origin, Series, Source
from vllm_watch.catalog.states import SLEEPING
from vllm_watch.state.engine_state import DOUBT_SECONDS, FIRST_STEP_FACTOR, LOG_ONLY_FACTOR, UNCOMPUTED_FACTOR
from vllm_watch.state.progress import FIRST_TOKEN_SECONDS


_INTRODUCTION = f"""\
# Series

Made from the code (`make generate`); a test holds that they agree. All names begin with `{PREFIX}`. Ratios go from 0 to
1, times are seconds, what is not known is absent: missing is not zero, and stale is not current. Histograms have
vLLM's own buckets. "Scrape" is vLLM's /metrics, "log" its log, "probe" a completion of one token that is asked for now
and then, where that is configured. Where log and scrape both say something the scrape decides; a value
older than three of its source's intervals is gone, but for the last line of an idle engine, and for facts, which hold
until the next start. What a server has counted (counters, histograms and objectives) outlives it: it stays at its last
value until the server has started again, so that nothing counted just before a crash is lost, however seldom somebody
asks. Only the daemon's own restart loses it, if the server is gone by then. While only the page cannot be read these
counters stand still, too: a rate of 0 then says nothing, and `source_up{{source="metrics"}}` says that. They are not
taken away, for what is counted in a gap would be missing from every window that is shorter than the gap. Labels
configured for a server (`labels:`) stand beside those named here.
"""

_ORIGINS: dict[Origin, str] = {
    "metrics": "scrape",
    "log": "log",
    "probe": "probe",
    "command line": "the command line",
    "configuration": "configuration",
    "daemon": "the daemon",
}


def document() -> str:
    """Return the whole page."""
    parts = [_INTRODUCTION]
    for group in GROUPS:
        parts.append(f"## {group.title}\n")
        parts += [_entry(series) for series in group.series]
        if group is STATE:
            parts.append(_states())
    return "\n".join(parts)


def _states() -> str:
    """Return what an engine is called stalled for, and what is mistaken for it."""
    reasons = "\n".join(f"| `{reason}` | {meaning} |" for reason, meaning in STALLED.items())
    return f"""\
### When an engine is stalled

It has work, and for `stall_after` (30 s), on three pages at least, nothing of it moves: no token, no engine step,
no KV cache block, no look-up in a cache, no request that comes, goes or finishes. Requests that clients give up do
not count, nor do requests that all wait for something remote (`requests_deferred`, with nothing running): KV blocks
from another server, or the next input of a streaming session. Such an engine is called serving, for the page does not
tell a quiet session from blocks that never come; if it lasts, VllmRequestsDeferred warns. A pooling model generates no
tokens: its prompt tokens and finished requests are its movement.

| reason | meaning |
|---|---|
{reasons}

Some healthy engines stand still as a wedged one does, and get more time:

* {FIRST_STEP_FACTOR:g} times `stall_after` while no request has had a token since the engine had nothing to do: it may
  be one long step, as of a prompt that is not computed in chunks, or one whose chunks take that long.
* {LOG_ONLY_FACTOR:g} times `stall_after` after the last token where only the log is read: vLLM prints nothing
  while a long prompt is computed and nothing else is.
* {FIRST_TOKEN_SECONDS / 60:g} min for the first requests after a start, for which kernels are compiled.
* {UNCOMPUTED_FACTOR:g} times `stall_after` while requests come and go and nothing is computed: then it is stalled
  although they do (`nothing_computed`).

What takes longer still is called stalled although it is not: a single step of over `stall_after` once tokens have
come (kernels that are compiled late, a model without a KV cache that computes a long prompt). Raise `stall_after`
for such a server. An engine that wedges before it has taken note of a request looks idle: only a probe notices.

### When an engine is sleeping

{SLEEPING}

Told by `vllm:engine_sleep_state` (0.11.1 and later), by the server's count of calls to /pause and
/resume, and by the log. The probe waits meanwhile. Requests that are sent are held, unseen: nothing runs, nothing
waits, and /health says 200. When it wakes they bring their whole wait with them, so that the time to the first
token, the queue time and the burn rate of an objective jump: leave that time out of baselines. A pause that neither
the page (no `http_requests_total`) nor the log (no access lines, before 0.32) tells of is known by nothing but
standing still, and is called stalled. So is one from before the daemon was started whose line the log's last 256 KiB
do not have, for how often a server was ever paused does not tell whether it is; and one that was paused and resumed
between two pages, where no log tells in which order.

### When an engine is down

Nothing listens at the page's address, or the log's last word is a fatal error or the end of the server. A page that is
read all the same is held against that word:

* After the end of the server: one that answers {DOUBT_SECONDS:g} s later has not ended.
* After a fatal error the engine stays down until something is computed between two pages that were both read after it
  (a token, a step, a KV cache block, a finished request), until the server is one that was started since, or until its
  log says so. That a page is read says nothing: with `VLLM_KEEP_ALIVE_ON_ENGINE_DEATH=1` the API server of a dead
  engine stays, its page stands still, requests get 500 and /health 503.

A client whose text is printed raw can forge such a line. An engine that has work shows within two pages that it lives;
an idle one is called down until its next request, or the next probe. Where no log is read a dead engine behind an API
server that stays looks idle, or stalled if requests were running: then, too, only a probe notices.
"""


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
