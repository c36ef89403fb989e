# SPDX-License-Identifier: Apache-2.0
"""Requests that gave up: what the HTTP server has answered beyond what its engines have finished."""

from __future__ import annotations

import pytest

from tests.support.recordings import NAMES, recording_path

from vllm_watch.analysis.replay.recording import BUNDLED, MetricsRead, Recording
from vllm_watch.daemon.state.scrape_source import GivenUp
from vllm_watch_parsers.scrape import MetricsReading, read_metrics


TRUTH = {"freeze": [20], "patience": [2], "day": [22, 0]}
"""How many clients gave up in each life of recorded servers, by whoever made the recordings; in all others none."""

UNKNOWN = {"pooling", "loadkill"}
"""Of the first requests are embeddings; the second has answered nothing."""


def counts(path):
    """Return the count of each life of a recorded server."""
    lives, start = [GivenUp()], None
    for event in Recording(path).events(Recording(path).servers[0]):
        reading = read_metrics(event.body) if isinstance(event, MetricsRead) and event.body else None
        if isinstance(reading, MetricsReading):
            if start is not None and reading.process_start_seconds != start:
                lives.append(GivenUp())
            start = reading.process_start_seconds
            lives[-1].note(reading)
    return [life.count for life in lives]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*(name for name in NAMES if name != "throttled"), "day"])
def test_the_clients_that_gave_up_are_counted_exactly(name):
    """The count is that of whoever made the recording, and 0 for each healthy server."""
    found = counts(BUNDLED if name == "day" else recording_path(name))
    expected = [None] if name in UNKNOWN else TRUTH.get(name)

    assert found == expected if expected is not None else set(found) <= {0, None}


def page(answered, stopped, *, running=0, copies=0, errors=0, failed=0):
    """Return what is read of a server that has answered and finished some requests."""
    labels = 'engine="0",model_name="m"'
    return read_metrics(
        f'http_requests_total{{handler="/v1/completions",method="POST",status="2xx"}} {answered}\n'
        f'http_requests_total{{handler="/v1/completions",method="POST",status="5xx"}} {failed}\n'
        f'http_requests_total{{handler="/health",method="GET",status="2xx"}} 1000\n'
        f"vllm:num_requests_running{{{labels}}} {running}\nvllm:num_requests_waiting{{{labels}}} 0\n"
        f'vllm:request_success_total{{{labels},finished_reason="stop"}} {stopped}\n'
        f'vllm:request_success_total{{{labels},finished_reason="error"}} {errors}\n'
        f'vllm:request_params_n_bucket{{{labels},le="+Inf"}} {stopped}\n'
        f"vllm:request_params_n_sum{{{labels}}} {stopped + copies}\nvllm:request_params_n_count{{{labels}}} {stopped}\n"
        f"vllm:prompt_tokens_total{{{labels}}} 1\nvllm:generation_tokens_total{{{labels}}} 1\n".encode()
    )


@pytest.mark.parametrize(
    ("pages", "expected"),
    [
        ([page(10, 10), page(15, 12)], 0),
        ([page(10, 10), page(15, 12), page(15, 12)], 3),
        ([page(15, 12, running=4), page(15, 12, running=4), page(19, 20, running=1), page(20, 20, running=1)], 3),
        ([page(10, 13, copies=3), page(10, 13, copies=3)], 0),
        ([page(10, 10, errors=2, failed=2)] * 2, 0),
        ([page(12, 10, errors=2)] * 2, 0),
        ([page(10, 12, failed=2)] * 2, 0),
        ([page(10, 40), page(10, 40)], None),
    ],
    ids=[
        "once is not enough",
        "twice is",
        "never falls",
        "n",
        "errors",
        "streams fail",
        "answers fail",
        "batched prompts",
    ],
)
def test_when_it_counts(pages, expected):
    """Two scrapes must say it, it never falls, and what cannot be compared is not known."""
    counted = GivenUp()
    for reading in pages:
        counted.note(reading)

    assert expected == counted.count
