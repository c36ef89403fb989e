# SPDX-License-Identifier: Apache-2.0
"""A healthy engine is not called stalled while anything in it moves, and a wedged one is."""

from __future__ import annotations

import pytest

from tests.support.server_stories import LOG, METRICS, READY, STARTING, Server, line, page

from vllm_watch.daemon.catalog.reasons import STALLED
from vllm_watch.daemon.exposition.json_view import server_view
from vllm_watch.daemon.exposition.samples import server_samples


def sample(name, value, more=""):
    """Return one more line of a page."""
    return f'vllm:{name}{{engine="0",model_name="m"{more}}} {value}\n'


def finished(count, reason="stop"):
    """Return the line of requests that are finished."""
    return sample("request_success_total", count, f',finished_reason="{reason}"')


def busy(step=0, **values):
    """Return a page of an engine that has served somebody, with a request."""
    return page(**{"running": 1, "generated": 50, "steps": step, **values})


def every(seconds, *pages):
    """Return a story of pages at equal distances."""
    return [each for body in pages for each in (seconds, body)]


DONE_WORK = {
    "tokens": lambda step: busy(generated=50 + step),
    "prompts": lambda step: busy(prompt=50 + step),
    "steps": busy,
    "kv": lambda step: busy(kv=0.1 + step / 1000),
    "finished": lambda step: busy(extra=finished(step)),
    "transfers": lambda step: busy(extra=sample("nixl_bytes_transferred_sum", step)),
}
COMMOTION = {
    "prefix": lambda step: busy(extra=sample("prefix_cache_queries_total", step)),
    "external": lambda step: busy(extra=sample("external_prefix_cache_queries_total", step)),
    "mm": lambda step: busy(extra=sample("mm_cache_queries_total", step)),
    "preemptions": lambda step: busy(kv=0.9 + step % 7 / 100, extra=sample("num_preemptions_total", step)),
    "kv falls": lambda step: busy(kv=0.9 - step / 100),
    "running": lambda step: busy(running=1 + step),
    "waiting": lambda step: busy(waiting=step),
    "deferred": lambda step: busy(waiting=9, deferred=step % 2),
}


@pytest.mark.parametrize("moving", DONE_WORK)
def test_work_that_is_done_is_no_stall(moving):
    """Tokens, steps, a KV cache that fills, requests that finish, blocks that arrive: any one is progress."""
    server = Server(**METRICS).tell(*every(5, *map(DONE_WORK[moving], range(40))))

    assert server.engine().state in {"serving", "saturated"}


@pytest.mark.parametrize("moving", COMMOTION)
def test_commotion_is_no_progress(moving):
    """Look-ups, preemptions, and requests that come, wait or go leave an engine stalled that computes nothing."""
    server = Server(**METRICS).tell(*every(5, *map(COMMOTION[moving], range(10))))

    server.tell("= stalled: nothing_computed")


STILL = busy(generated=60)
UNSERVED = page(running=1)
ONE_LONG_STEP = busy(kv=0.1)
EMBEDDING = [page(running=1, kv=0, prompt=step, extra=finished(step)) for step in range(20)]
ASKED = page(waiting=2, deferred=2, generated=50, extra=sample("external_prefix_cache_queries_total", 9))
STORIES = {
    "While a long prompt is computed in chunks only the KV cache's use moves, for minutes.": (
        METRICS,
        [*every(5, *[page(generated=50, kv=0)] * 4, *(busy(kv=0.01 * step) for step in range(1, 60))), "= serving"],
    ),
    "The front end knows of requests that clients give up: they show no life of the engine.": (
        METRICS,
        [
            *every(5, busy(), *(busy(generated=60, running=4, extra=finished(step, "abort")) for step in range(12))),
            "= stalled: batch_stands_still",
        ],
    ),
    "Where all that the gauges show was aborted as progress ended, they prove no hang.": (
        METRICS, [*every(5, busy(running=4), *[busy(running=4, steps=1, extra=finished(4, "abort"))] * 30), "= unknown"]
    ),
    "Requests are aborted all the time: as many as before do not hide that the engine hangs.": (
        METRICS,
        [
            *every(5, *[busy(running=4, generated=50 + n, extra=finished(3 * n, "abort")) for n in range(10)]),
            "= serving",
            *every(5, *[busy(running=4, generated=59, extra=finished(27, "abort"))] * 10), "= stalled",
        ],
    ),
    "Requests that are aborted long after progress ended do not hide that the engine hangs.": (
        METRICS,
        [
            *every(5, busy(running=4), *[busy(running=4, generated=60)] * 10), "= stalled",
            *every(5, *[busy(running=4, generated=60, extra=finished(40, "abort"))] * 10), "= stalled",
        ],
    ),
    "Of a server that only embeds, prompt tokens and finished requests are the movement.": (
        METRICS, [*every(5, *EMBEDDING), "= serving", *every(5, *EMBEDDING[-1:] * 14), "= stalled"]
    ),
    "With a page a minute two pages that say the same may be two requests; the third makes a stall.": (
        {**METRICS, "interval": 60.0},
        [*every(60, page(generated=50), STILL, STILL), "= serving", *every(60, STILL), "= stalled"],
    ),
    "With a page every five seconds a stall is found after half a minute, as the configuration says.": (
        METRICS, [*every(5, busy(), *[STILL] * 6), "= serving", *every(5, STILL), "= stalled"]
    ),
    # Where one long step looks the same as a stall, more time passes.
    "An idle engine's next request may be one long step: without its first token it gets two minutes.": (
        METRICS,
        [*every(5, *[page(generated=50)] * 3, *[ONE_LONG_STEP] * 24), "= serving", 5, ONE_LONG_STEP, "= stalled"],
    ),
    "Kernels are compiled for the first requests: an engine that never gave a token gets five minutes.": (
        METRICS, [*every(5, *[UNSERVED] * 60), "= serving", 5, UNSERVED, "= stalled: no_first_token"]
    ),
    "Who sets `stall_after` above five minutes has it for the first requests, too.": (
        {**METRICS, "stall_after": 600}, [*every(5, *[UNSERVED] * 100), "= serving"]
    ),
    "From the log alone, a server that has printed no token since its start gets five minutes, too.": (
        LOG, [(STARTING, READY, line(1)), 280, "= unknown", 20, "= stalled: no_first_token"]
    ),
    # Requests that wait for something remote leave the engine nothing to do, unless a KV connector is asked for it.
    "A quiet streaming session, a grammar or an adapter that is awaited is no stall.": (
        METRICS, [*every(5, *[page(waiting=2, deferred=2, generated=50)] * 100), "= serving"]
    ),
    "A KV connector that has long done nothing for the requests that wait for it is a stall.": (
        METRICS, [*every(5, *[ASKED] * 17), "= serving", 5, ASKED, "= stalled: queue_stands_still"]
    ),
    "A request that waits for capacity while nothing runs is the engine's to take up.": (
        METRICS, [*every(5, *[page(waiting=3, deferred=2, generated=50)] * 30), "= stalled: queue_stands_still"]
    ),
    "A log that ended while all that waited was deferred tells of no stall, and in time of nothing.": (
        LOG, [line(1, generation=5.0), 10, line(0, 1, deferred=1), 20, "= serving", 3600, "= unknown"]
    ),
}  # fmt: skip


@pytest.mark.parametrize(("sources", "story"), STORIES.values(), ids=STORIES)
def test_when_an_engine_is_stalled(sources, story):
    """The sentence says what is true, and the story shows it."""
    Server(**sources).tell(*story)


def test_the_reason_is_shown_while_the_stall_lasts():
    """The reason is a series, and in the JSON with its meaning, of a stalled engine and of no other."""
    server = Server(**METRICS).tell(*every(5, busy(), *[STILL] * 20))

    def shown():
        snapshot = server.state.snapshot(server.now)
        reasons = [sample.labels[-1] for sample in server_samples(snapshot) if sample.name == "engine_stall_info"]
        return reasons, server_view(snapshot)["engines"][0].get("cause")

    why = "batch_stands_still"
    assert ([why], {"reason": why, "meaning": STALLED[why]}) == shown()
    server.tell(5, busy(generated=70))
    assert ([], None) == shown()
