# SPDX-License-Identifier: Apache-2.0
"""Drafted and accepted tokens per second from the log alone: over one interval, however late a line is read."""

from __future__ import annotations

import pytest

from tests.state.test_sources_together import Server, line


def drafts(seconds, tokens=500):
    """Return a line on drafts that vLLM divides by so many seconds: half of those drafted were accepted."""
    return (
        "INFO 11-21 02:35:10 [metrics.py:100] SpecDecoding metrics: Mean acceptance length: 2.00, Accepted throughput: "
        f"{tokens / seconds:.2f} tokens/s, Drafted throughput: {2 * tokens / seconds:.2f} tokens/s, "
        f"Accepted: {tokens} tokens, Drafted: {2 * tokens} tokens, Per-position acceptance rate: 0.500, 0.500, "
        "Avg Draft acceptance rate: 50.0%"
    ).encode()


def shown(moments):
    """Return the accepted tokens per second after each line; `moments` are when it is read and what it covers."""
    server, rates = Server(has_metrics=False), []
    server.now = 0.0
    for read, covered in moments:
        server.log(line(running=4, generation=100.0), drafts(covered), after=read - server.now)
        gauges = server.engine().gauges
        rates.append(gauges["spec_decode_accepted_tokens_per_second"].value)
        assert gauges["spec_decode_drafted_tokens_per_second"].value == pytest.approx(2 * rates[-1], rel=1e-3)
    return rates


@pytest.mark.parametrize("late", [0.5, 3.5, 5.0, 9.4, 9.9])
@pytest.mark.parametrize("index", range(6))
def test_a_line_that_is_read_late_changes_no_rate(late, index):
    """One late look, whichever line it is at: the lines say 50 tokens/s, and so do the gauges."""
    moments = [(10.0 * number + (late if number == index else 0.0), 10) for number in range(1, 12)]

    assert [50.0] * len(moments) == shown(moments)


def test_several_late_looks_change_no_rate():
    """A file system that shows what was written seconds later, now and then, makes no engine faster."""
    late = (0.0, 9.0, 0.0, 8.0, 0.0, 9.5, 7.0, 0.0, 9.0, 0.0)

    assert [50.0] * 10 == shown([(10.0 * number + seconds, 10) for number, seconds in enumerate(late)])


def test_after_a_pause_the_rate_is_that_of_one_interval():
    """VLLM divides by the pause, too: what was made in the last interval was made in that."""
    assert [50.0, 50.0, 50.0, 50.0] == shown([(10, 10), (20, 10), (80, 60), (90, 10)])


def test_a_request_now_and_then_is_always_after_a_pause():
    """An engine that works for one interval a minute shows what it made in that interval."""
    server = Server(has_metrics=False)
    for _ in range(4):
        server.log(line(running=1, generation=100.0), drafts(60), after=50)
        rate = server.value("spec_decode_accepted_tokens_per_second")
        server.log(line(), after=10)

    assert (50.0, "log") == rate


@pytest.mark.parametrize("interval", [1, 5, 30, 60])
def test_an_interval_that_the_operator_set_is_no_pause(interval):
    """VLLM_LOG_STATS_INTERVAL may be anything: lines that come as often as always are shown as they say."""
    rates = shown([(interval * number, interval) for number in range(1, 8)])

    assert rates[2:] == [pytest.approx(500 / interval, rel=1e-3)] * 5
