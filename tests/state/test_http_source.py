# SPDX-License-Identifier: Apache-2.0
"""HTTP requests are counted by the access log, or by the page where the log has no access lines; never by both."""

from __future__ import annotations

import pytest

from tests.support.server_stories import STARTING, Server, line, page


ACCESS = b'INFO:     1.1.1.1:1 - "POST /v1/completions HTTP/1.1" 200 OK'
LOGGED = (STARTING, line())


def counted(requests, method="POST", handler="/v1/completions", **values):
    """Return a page that has counted so many completions, or other requests."""
    extra = f'http_requests_total{{method="{method}",handler="{handler}",status="2xx"}} {requests}\n'
    return page(extra=extra, **values)


def up_to(last, **values):
    """Return a story in which the page counts a request every 5 s."""
    return [each for number in range(last + 1) for each in (5, counted(number, **values))]


STORIES = {
    "With --disable-uvicorn-access-log the page counts from the fifth request without a line on.": (
        [LOGGED, *up_to(4), "requests = ", 5, counted(5), "requests = 2xx: 5"]
    ),
    "The access line comes when an answer begins, the page counts it when it ends: the log goes on to count.": (
        [
            LOGGED, *(each for number in range(8) for each in (ACCESS, 5, counted(number, running=8))),
            *(each for number in range(20) for each in (5, counted(8 + min(number, 8)))), "requests = 200: 8",
        ]
    ),
    "Whoever asks for models all day may be left out of the access log by the operator.": (
        [LOGGED, *(each for number in range(40) for each in (5, counted(number, "GET", "/v1/models"))), "requests = "]
    ),
    "A line that was read late takes the choice back, and the page's classes of codes go.": (
        [LOGGED, *up_to(9), ACCESS, *up_to(40), "requests = 200: 1"]
    ),
    "What the access log has counted stays over a restart.": (
        [STARTING, (ACCESS, line()), 5, counted(1), 60, STARTING, 5, *up_to(9, start=9.0), "requests = 200: 1"]
    ),
}  # fmt: skip


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_who_counts_requests(story):
    """The sentence says what is true, and the story shows it."""
    Server().tell(*story)


@pytest.mark.parametrize("every", [1, 2, 3])
def test_a_log_with_access_lines_counts(every):
    """However late the lines are read: they count, and the page's classes of codes stand nowhere beside them."""
    server = Server().tell(LOGGED)
    for number in range(40):
        server.tell(5, counted(100 + number), *([(ACCESS,) * every] if number % every == every - 1 else []))

    server.tell(f"requests = 200: {40 - 40 % every}")
