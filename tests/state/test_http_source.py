# SPDX-License-Identifier: Apache-2.0
"""HTTP requests are counted by the access log, or by the page where the log has no access lines; never by both."""

from __future__ import annotations

import pytest

from tests.state.test_sources_together import STARTING, Server, line, page


ACCESS = b'INFO:     1.1.1.1:1 - "POST /v1/completions HTTP/1.1" 200 OK'


def counted(requests, **values):
    """Return a page that has counted so many completions."""
    extra = f'http_requests_total{{method="POST",handler="/v1/completions",status="2xx"}} {requests}\n'
    return page(extra=extra, **values)


def requests(server):
    """Return what is shown, by code."""
    return {key.code: count for key, count in server.state.snapshot(server.now).http_requests.items()}


def test_a_log_without_access_lines_leaves_the_counting_to_the_page():
    """With --disable-uvicorn-access-log the page's counter is shown, as soon as it grows and the log says nothing."""
    server = Server().log(STARTING, line())
    for number in range(5):
        server.scrape(counted(100 + number), after=5)

    assert {"2xx": 104} == requests(server)


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


def test_a_choice_is_never_taken_back():
    """A server started again with an access log is counted by its page on and on: no counter has two sources."""
    server = Server().log(STARTING, line())
    for number in range(6):
        server.scrape(counted(100 + number), after=5)
    server.log(STARTING, after=60).scrape(counted(1, start=9.0), after=5).log(ACCESS)

    assert {"2xx": 1} == requests(server)


def test_the_counts_of_a_log_stay_until_the_page_is_needed():
    """What the access log has counted stays over a restart, and until requests come that it does not have."""
    server = Server().log(STARTING, ACCESS, line()).scrape(counted(1), after=5)
    server.log(STARTING, after=60).scrape(counted(0, start=9.0), after=5)
    before = requests(server)
    for number in range(1, 6):
        server.scrape(counted(number, start=9.0), after=5)

    assert ({"200": 1}, {"2xx": 5}) == (before, requests(server))
