# SPDX-License-Identifier: Apache-2.0
"""Bytes to lines: what ends one, what is dropped, and what is left of it."""

from __future__ import annotations

import pytest

from vllm_watch.daemon.reading.framing import MAX_LINE, LineFramer


@pytest.mark.parametrize(
    "line",
    [
        b"\xff\xfe not UTF-8 \x80",
        b"\xef\xbb\xbfwith a byte order mark",
        b"lone \r inside",
        b"next line \xc2\x85 and \xe2\x80\xa8 and \xe2\x80\xa9",
        b"tabs \t \x0b \x0c \x1c \x1d \x1e",
        b"\x1b[31mcolours\x1b[0m \x1b]0;title\x07 \x1b[2K",
        b"\r",
        b"ends in \r",
        b"",
    ],
)
@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_line_feed_ends_a_line_and_nothing_else(line, size):
    """T20: whatever bytes a line holds, it is one line, however it is cut when it is read."""
    data = b"before\n" + line + b"\nafter\n"
    framer = LineFramer()

    found = [whole for at in range(0, len(data), size) for whole in framer.feed(data[at : at + size])]

    assert [b"before", line, b"after"] == found


def test_an_unfinished_line_waits():
    """T20: what has no line feed yet is no line; its bytes are said to be pending."""
    framer = LineFramer()

    assert ([b"a"], 4) == (framer.feed(b"a\nhalf"), framer.pending)
    assert ([b"half line"], 0) == (framer.feed(b" line\n"), framer.pending)


@pytest.mark.parametrize(("end", "mark"), [(b"", b"\0"), (b"\r", b"\0\r")])
@pytest.mark.parametrize("size", [1000, 3 * MAX_LINE])
def test_a_long_line_leaves_its_beginning(end, mark, size):
    """T19, T20: of a line that is dropped its beginning stays, and whether it opens a record; it is counted."""
    data = b"INFO x" + b"y" * (2 * MAX_LINE) + end + b"\nnext\n"
    framer = LineFramer()

    found = [line for at in range(0, len(data), size) for line in framer.feed(data[at : at + size])]

    assert [b"INFO x" + b"y" * 1018 + mark, b"next"] == found
    assert (1, 0) == (framer.long_lines, framer.pending)


def test_the_end_of_a_long_line_may_come_alone():
    r"""T20: the ``\r`` before a line feed counts also where a read ends between the two."""
    framer = LineFramer(max_line=10)

    assert [] == framer.feed(b"x" * 20 + b"\r")
    assert [b"xxxxx\0\r"] == framer.feed(b"\n")


def test_the_rest_of_a_line_is_dropped():
    """T20: where reading begins inside a line, the line's text is not read as a line, even if its end comes later."""
    framer = LineFramer()
    framer.go_inside_line()

    assert [] == framer.feed(b"rest ")
    assert [b"\0\r", b"next"] == framer.feed(b"of it\r\nnext\n")


def test_no_line_holds_a_nul():
    """T10, T20: NUL bytes are taken away and counted, so that the mark of a cut cannot be forged."""
    framer = LineFramer()

    assert [b"ab", b""] == framer.feed(b"\0a\0b\0\n\0\0\n")
    assert 5 == framer.nul_bytes


def test_endless_nuls_take_no_memory():
    """T11: NUL bytes without a line feed are counted and not held."""
    framer = LineFramer()
    for _ in range(100):
        framer.feed(bytes(1_000_000))

    assert (100_000_000, 0) == (framer.nul_bytes, framer.pending)
