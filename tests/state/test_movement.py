# SPDX-License-Identifier: Apache-2.0
"""A healthy engine is not called stalled while anything in it moves, and a wedged one is."""

from __future__ import annotations

import pytest

from tests.state.test_sources_together import READY, STARTING, Server, line, page

from vllm_watch.daemon.catalog.reasons import STALL_REASONS, STALLED
from vllm_watch.daemon.exposition.json_view import server_view
from vllm_watch.daemon.exposition.samples import server_samples


LABELS = 'engine="0",model_name="m"'


def sample(name, value, more=""):
    """Return one more line of a page."""
    return f"vllm:{name}{{{LABELS}{more}}} {value}\n"


def watched(bodies, interval=5.0, **settings):
    """Return a server whose pages were read one after the other."""
    server = Server(has_log=False, interval=interval, **settings)
    for body in bodies:
        server.scrape(body, after=interval)
    return server


def worked(times, *, before=None, **values):
    """Return pages of an engine that served somebody and now says the same again and again."""
    first = page(running=1, generated=50) if before is None else before
    return [first, *[page(**{"running": 1, "generated": 60, **values}) for _ in range(times)]]


class TestMovement:
    """What counts as movement."""

    @pytest.mark.parametrize(
        "moving",
        [
            lambda step: page(running=1, generated=50 + step),
            lambda step: page(running=1, generated=50, steps=step),
            lambda step: page(running=1, generated=50, kv=0.1 + step / 1000),
            lambda step: page(
                running=1, generated=50, extra=sample("request_success_total", step, ',finished_reason="stop"')
            ),
        ],
        ids=["tokens", "steps", "kv", "finished"],
    )
    def test_work_that_is_done_is_no_stall(self, moving):
        """Tokens, steps, a KV cache that fills, requests that finish: any one is progress."""
        server = watched([moving(step) for step in range(40)])

        assert server.engine().state in {"serving", "saturated"}

    @pytest.mark.parametrize(
        "moving",
        [
            lambda step: {"extra": sample("prefix_cache_queries_total", step)},
            lambda step: {"extra": sample("external_prefix_cache_queries_total", step)},
            lambda step: {"extra": sample("mm_cache_queries_total", step)},
            lambda step: {"extra": sample("num_preemptions_total", step), "kv": 0.9 + step % 7 / 100},
            lambda step: {"kv": max(0.9 - step / 100, 0)},
            lambda step: {"running": 1 + step},
            lambda step: {"waiting": step},
            lambda step: {"waiting": 9, "deferred": step % 2},
        ],
        ids=["prefix", "external", "mm", "preemptions", "kv falls", "running", "waiting", "deferred"],
    )
    def test_commotion_is_no_progress(self, moving):
        """Look-ups, preemptions, and requests that come, wait or go leave an engine stalled that computes nothing."""
        server = watched([page(**{"running": 1, "generated": 50, **moving(step)}) for step in range(10)])

        assert ("stalled", "nothing_computed") == (server.engine().state, server.engine().cause)

    def test_a_lone_long_prompt_is_no_stall(self):
        """While a long prompt is computed in chunks only the KV cache's use moves, for minutes."""
        idle = [page(generated=50, kv=0)] * 4
        server = watched(idle + [page(running=1, generated=50, kv=0.01 * step) for step in range(1, 60)])

        assert "serving" == server.engine().state

    def test_requests_that_clients_give_up_are_no_movement(self):
        """The front end knows of requests that clients give up: they show no life of the engine."""
        aborted = [sample("request_success_total", step, ',finished_reason="abort"') for step in range(12)]
        server = watched([page(running=1, generated=50), *[page(running=1, generated=60, extra=a) for a in aborted]])

        assert ("stalled", "batch_stands_still") == (server.engine().state, server.engine().cause)

    def test_a_pooling_model_moves_without_generating(self):
        """Of a server that only embeds, prompt tokens and finished requests are the movement."""

        def embedding(step):
            finished = sample("request_success_total", step, ',finished_reason="stop"')
            return page(running=1, kv=0, extra=finished).replace(
                b"prompt_tokens_total{%b} 0" % LABELS.encode(), b"prompt_tokens_total{%b} %d" % (LABELS.encode(), step)
            )

        works = watched([embedding(step) for step in range(20)])
        wedged = watched([embedding(min(step, 5)) for step in range(20)])

        assert ("serving", "stalled") == (works.engine().state, wedged.engine().state)


class TestHowManyPages:
    """Two pages are two moments."""

    def test_three_pages_must_say_the_same(self):
        """With a page a minute two pages that say the same may be two requests; the third makes a stall."""
        bodies = worked(2, before=page(generated=50))
        server = watched(bodies, interval=60.0)
        early = server.engine().state
        server.scrape(page(running=1, generated=60), after=60)

        assert ("serving", "stalled") == (early, server.engine().state)

    def test_a_stall_takes_no_longer_with_many_pages(self):
        """With a page every five seconds a stall is found after half a minute, as the configuration says."""
        found = [watched(worked(times)).engine().state for times in (6, 7)]

        assert ["serving", "stalled"] == found


class TestPatience:
    """Where one long step looks the same as a stall, more time passes."""

    def test_work_that_has_no_token_yet_gets_more_time(self):
        """An idle engine's next request may be one long step: without its first token it gets two minutes."""
        idle = [page(generated=50)] * 3
        early = watched(idle + [page(running=1, generated=50, kv=0.1)] * 24).engine()
        late = watched(idle + [page(running=1, generated=50, kv=0.1)] * 25).engine()

        assert ("serving", "stalled") == (early.state, late.state)

    def test_the_first_requests_after_a_start_get_more_time(self):
        """Kernels are compiled for the first requests: an engine that never gave a token gets five minutes."""
        early = watched([page(running=1)] * 60).engine()
        late = watched([page(running=1)] * 61).engine()

        assert ("serving", "stalled", "no_first_token") == (early.state, late.state, late.cause)

    def test_a_configuration_can_ask_for_more_still(self):
        """Who sets `stall_after` above five minutes has it for the first requests, too."""
        found = watched([page(running=1)] * 100, stall_after=600).engine()

        assert "serving" == found.state

    def test_the_log_alone_gives_the_first_requests_more_time(self):
        """From the log alone, a server that has printed no token since its start gets five minutes, too."""
        server = Server(has_metrics=False).log(STARTING, READY, line(1))
        early = server.engine(after=280)
        late = server.engine(after=20)

        assert ("unknown", "stalled", "no_first_token") == (early.state, late.state, late.cause)


class TestWhatOnlyWaits:
    """Requests that wait for something remote leave the engine nothing to do."""

    def test_deferred_requests_do_not_stall(self):
        """A quiet streaming session, a grammar or an adapter that is awaited is no stall."""
        server = watched([page(waiting=2, deferred=2, generated=50)] * 100)

        assert "serving" == server.engine().state

    def test_a_request_for_capacity_beside_them_does(self):
        """A request that waits for capacity while nothing runs is the engine's to take up."""
        server = watched([page(waiting=3, deferred=2, generated=50)] * 30)

        assert ("stalled", "queue_stands_still") == (server.engine().state, server.engine().cause)

    def test_a_connector_that_stands_still_does(self):
        """Where a KV connector is asked, requests that only wait for it are stalled once it has long done nothing."""
        asked = sample("external_prefix_cache_queries_total", 100)
        bodies = [page(waiting=2, deferred=2, generated=50, extra=asked)]
        early, late = (watched(bodies * times).engine().state for times in (17, 18))

        assert ("serving", "stalled") == (early, late)

    def test_deferred_requests_do_not_stall_from_the_log(self):
        """A log that ended while all that waited was deferred tells of no stall, and in time of nothing."""
        text = line(0, 1).replace(b"Waiting: 1 reqs", b"Waiting: 1 reqs, Deferred: 1 reqs")
        server = Server(has_metrics=False).log(line(1, generation=5.0)).log(text, after=10)

        assert ("serving", "unknown") == (server.engine(after=20).state, server.engine(after=3600).state)


def test_every_reason_is_explained():
    """Each reason for calling an engine stalled has its sentence, and no other has."""
    assert set(STALL_REASONS) == set(STALLED)


def test_the_reason_is_shown_while_the_stall_lasts():
    """The reason is a series, and in the JSON with its meaning, of a stalled engine and of no other."""
    stalled = watched(worked(20))
    moving = watched([*worked(20), page(running=1, generated=70)])

    def shown(server):
        snapshot = server.state.snapshot(server.now)
        reasons = [sample.labels[-1] for sample in server_samples(snapshot) if sample.name == "engine_stall_info"]
        return reasons, server_view(snapshot)["engines"][0].get("cause")

    why = "batch_stands_still"
    assert ([why], {"reason": why, "meaning": STALLED[why]}) == shown(stalled)
    assert ([], None) == shown(moving)
