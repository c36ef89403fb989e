# SPDX-License-Identifier: Apache-2.0
"""The time of a decode step: of what work it is, and when it is not known."""

from __future__ import annotations

import pytest

from tests.support.pages import LABELS, ScrapedServer, histogram, page

from vllm_watch.daemon.exposition.samples import server_samples


def counter(name, value):
    """Return a counter's line."""
    return f"vllm:{name}_total{{{LABELS}}} {value}\n"


def decoded(steps, *, running=4, seconds=0.02, prompt=0, started=0, accepted=0.0, drafts=False, waits=1.0, **values):
    """
    Return a page after some steps.

    Args:
        steps: How many, since the start.
        running: Requests that each step decoded, and that run.
        seconds: How long each took.
        prompt: Prompt tokens computed since the start.
        started: First tokens since the start.
        accepted: Tokens of drafts for each request and step.
        drafts: Whether the page has drafts at all.
        waits: How many times between two outputs were observed for each output.
        values: What else is on the page.
    """
    outputs = steps * running
    observed = (outputs - started) * waits
    extra = histogram("iteration_tokens_total", {"1.0": 0, "+Inf": steps}, outputs + prompt)
    extra += histogram("inter_token_latency_seconds", {"0.01": 0, "+Inf": observed}, observed * seconds)
    extra += histogram("time_to_first_token_seconds", {"0.5": started, "+Inf": started}, started * 0.1)
    if drafts:
        extra += counter("spec_decode_num_accepted_tokens", outputs * accepted)
    extra += values.pop("extra", "")
    page_values = {"running": running, "kv": 0.25, "prompt": prompt, "generated": outputs * (1 + accepted), **values}
    return page(**page_values, extra=extra)


CAPACITY = 'vllm:cache_config_info{engine="0",kv_cache_size_tokens="16000"} 1\n'


def times(pages, **scraping):
    """Return the times of a step by its class, in milliseconds, after some pages."""
    found = ScrapedServer(**scraping).scrape_all(pages).step_times
    return {tuple(of_class): round(time.seconds * 1000, 6) for of_class, time in found.items()}


def steps(*counts, **values):
    """Return pages after so many steps."""
    return [decoded(count, **values) for count in counts]


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({}, {("2-4", "1/16", "0-16"): 20.0}),
        ({"running": 1}, {("1", "1/4", "0-16"): 20.0}),
        ({"running": 5}, {("5-8", "1/16", "0-16"): 20.0}),
        ({"running": 9, "kv": 0.9}, {("9-16", "1/8", "0-16"): 20.0}),
        ({"extra": CAPACITY}, {("2-4", "1-1024", "0-16"): 20.0}),
        ({"extra": CAPACITY, "kv": 0.5}, {("2-4", "1025-2048", "0-16"): 20.0}),
        ({"accepted": 1.5, "drafts": True}, {("2-4", "1/16", "0-16"): 20.0}),
        ({"seconds": 0.035}, {("2-4", "1/16", "0-16"): 35.0}),
    ],
    ids=str,
)
def test_a_step_is_of_its_class(values, found):
    """The batch, the context and the prompts of a step are its class; drafts change neither that nor its time."""
    assert times(steps(0, 100, 200, 300, **values)) == found


@pytest.mark.parametrize(
    ("per_step", "prompt_class"),
    [(10, "0-16"), (17, "17-32"), (40, "33-64"), (70, "65-96"), (100, "97-128"), (129, "129-192"), (200, "193-256")],
)
def test_prompts_have_classes_of_their_own(per_step, prompt_class):
    """A step with prompts is compared with those that had as many."""
    pages = [decoded(100 * number, prompt=100 * number * per_step, started=10 * number) for number in range(4)]

    assert times(pages) == {("2-4", "1/16", prompt_class): 20.0}


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([{"accepted": 1.5}] * 4, id="drafts that are not counted"),
        pytest.param([{"waits": 0.5}] * 4, id="outputs that are not observed"),
        pytest.param([{"running": 4}, {"running": 6}, {"running": 4}, {"running": 6}], id="another batch"),
        pytest.param([{"extra": counter("num_preemptions", n)} for n in range(4)], id="preempted"),
        pytest.param([{"kv": 0.25, "running": 0}] * 4, id="nothing ran"),
    ],
)
def test_other_times_are_not_those_of_a_step(values):
    """Where something else took time, or nothing says what a step did, no time is shown."""
    assert times([decoded(100 * number, **more) for number, more in enumerate(values)]) == {}


@pytest.mark.parametrize(
    ("pages", "options"),
    [
        (steps(0, 5, 10, 15), {}),
        (steps(0, 100, 200), {}),
        ([page(running=4, kv=0.25, generated=400 * number) for number in range(4)], {}),
    ],
    ids=["few steps", "two scrapes", "no histograms"],
)
def test_too_little_is_not_shown(pages, options):
    """A few steps, two measurements, or a page without the histograms are no time of a step."""
    assert times(pages, **options) == {}


def test_a_time_is_of_the_last_five_minutes():
    """It is the median of what was measured, one outlier changes nothing, and it ends with the traffic."""
    server = ScrapedServer()
    known = [server.scrape(body) for body in steps(0, 100, 200, 300)]
    slow = [decoded(400, seconds=0.0175), *[decoded(400, seconds=0.0175)] * 58]
    known += [server.scrape(body) for body in slow]

    ((_, time),) = known[3].engines[0].step_times.items()
    assert (time.seconds, time.measured, time.at) == (pytest.approx(0.02), 3, known[3].at)
    ((_, time),) = known[10].engines[0].step_times.items()
    assert (time.seconds, time.measured) == (pytest.approx(0.02), 4)
    assert known[-1].engines[0].step_times == {}


def test_a_time_names_what_it_depends_on():
    """The series has the configuration's digest where more than /metrics has the flags, else the start."""
    pages = [body + "process_start_time_seconds 1\n" for body in steps(0, 100, 200, 300)]
    server = ScrapedServer()
    for body in pages:
        snapshot = server.scrape(body)

    (labels,) = [sample.labels for sample in server_samples(snapshot) if sample.name == "decode_step_seconds"]
    assert labels == ("s", "m", "0", "started 1", "", "2-4", "1/16", "0-16")
