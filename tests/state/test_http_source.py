# SPDX-License-Identifier: Apache-2.0
"""HTTP requests are counted by the access log, or by the page where the log has no access lines; never by both."""

from __future__ import annotations

import pytest

from tests.support.server_stories import STARTING, Server, line, page

from vllm_watch.daemon.state.snapshot import LogStatus, TailCounts


ACCESS = b'INFO:     1.1.1.1:1 - "POST /v1/completions HTTP/1.1" 200 OK'


def counted(requests, **values):
    """Return a page that has counted so many completions."""
    extra = f'http_requests_total{{method="POST",handler="/v1/completions",status="2xx"}} {requests}\n'
    return page(extra=extra, **values)


def requests(server):
    """Return what is shown, by code."""
    return {key.code: count for key, count in server.state.snapshot(server.now).http_requests.items()}


def count_up(server, to, **values):
    """Let the page count a request every 5 s."""
    for number in range(to + 1):
        server.scrape(counted(number, **values), after=5)
    return server


def test_a_log_without_access_lines_leaves_the_counting_to_the_page():
    """With --disable-uvicorn-access-log the page's counter is shown 15 s after the fifth request without a line."""
    server = count_up(Server().log(STARTING, line()), 7)
    before = requests(server)

    assert ({}, {"2xx": 8}) == (before, requests(server.scrape(counted(8), after=5)))


def test_an_answer_that_took_long_changes_nothing():
    """The access line comes when an answer begins, the page counts it when it ends: the log goes on to count."""
    server = Server().log(STARTING, line())
    for number in range(8):
        server.log(ACCESS).scrape(counted(number, running=8), after=5)
    for number in range(20):
        server.scrape(counted(8 + min(number, 8)), after=5)

    assert {"200": 8} == requests(server)


def test_answers_that_were_on_their_way_prove_nothing():
    """Of requests that ran before anybody read the log the lines may stand anywhere: five more are waited for."""
    server = Server().log(line(running=3)).scrape(counted(0, running=2, waiting=1))
    for number in range(20):
        server.scrape(counted(min(number, 7)), after=5)
    before = requests(server)
    server.scrape(counted(8), after=5).scrape(counted(8), after=15)

    assert ({}, {"2xx": 8}) == (before, requests(server))


def test_a_log_out_of_reach_proves_nothing():
    """What the page counts while the log cannot be read may stand in it: counting by the log goes on afterwards."""
    server = Server().log(STARTING, line()).scrape(counted(0))
    server.state.apply_log_status(LogStatus(is_up=False, reason="read_error", tail=TailCounts()))
    count_up(server, 20)
    server.state.apply_log_status(LogStatus(is_up=True, reason="ok", tail=TailCounts()))
    server.scrape(counted(20), after=30)

    assert {"200": 21} == requests(server.log(*[ACCESS] * 21).scrape(counted(21), after=30))


@pytest.mark.parametrize("seconds", [25, 600])
def test_lines_that_are_read_late_still_count(seconds):
    """A look at the log that hangs, for however long, leaves the counting to the log that had access lines before."""
    server = Server().log(STARTING, line()).log(ACCESS)
    count_up(server, seconds // 5)

    assert {"200": 1} == requests(server)


def test_requests_of_monitoring_prove_nothing():
    """Whoever asks for models all day may be left out of the access log by the operator."""
    server = Server().log(STARTING, line())
    for number in range(40):
        extra = f'http_requests_total{{method="GET",handler="/v1/models",status="2xx"}} {number}\n'
        server.scrape(page(extra=extra), after=5)

    assert {} == requests(server)


def test_before_there_is_a_request_nothing_is_chosen():
    """A page that stands still does not tell whether the log has access lines: nothing is shown of either."""
    server = Server().log(STARTING, line())
    for _ in range(60):
        server.scrape(counted(100), after=5)

    assert {} == requests(server)


@pytest.mark.parametrize("every", [1, 2, 3])
def test_a_log_with_access_lines_counts(every):
    """However late the lines are read: they count, and the page's classes of codes stand nowhere beside them."""
    server = Server().log(STARTING, line())
    for number in range(40):
        server.scrape(counted(100 + number), after=5)
        if number % every == every - 1:
            server.log(*[ACCESS] * every)

    assert {"200": 40 - 40 % every} == requests(server)


def test_a_choice_is_of_one_life():
    """A server started again is counted by its page until an access line shows that it has a log of them now."""
    server = count_up(Server().log(STARTING, line()), 9)
    server.log(STARTING, after=60).scrape(counted(1, start=9.0), after=5)
    before = requests(server)

    assert ({"2xx": 1}, {"200": 1}) == (before, requests(server.log(ACCESS)))


def test_one_access_line_is_enough():
    """A line that was read too late takes the choice back, and the page's classes of codes go."""
    server = count_up(Server().log(STARTING, line()), 9).log(ACCESS)

    assert {"200": 1} == requests(count_up(server, 40))


def test_the_counts_of_a_log_stay_until_the_page_is_needed():
    """What the access log has counted stays over a restart, and until requests come that it does not have."""
    server = Server().log(STARTING).log(ACCESS, line()).scrape(counted(1), after=5)
    server.log(STARTING, after=60).scrape(counted(0, start=9.0), after=5)
    before = requests(server)

    assert ({"200": 1}, {"2xx": 9}) == (before, requests(count_up(server, 9, start=9.0)))
