# SPDX-License-Identifier: Apache-2.0
"""The wrapping of container runtimes: what is unwrapped are whole lines, and the same ones however they come."""

from __future__ import annotations

import json

import pytest

from tests.parsers.lines import STATS_MESSAGE, record

from vllm_watch.reading.containers import MAX_PARTIAL, Unwrapper


STATISTICS = record(STATS_MESSAGE)
PIECE = 16 * 1024


def docker(line, stream="stdout"):
    """Return a line as Docker keeps it, which cuts it into pieces."""
    text = line.decode() + "\n"
    pieces = [text[at : at + PIECE] for at in range(0, len(text), PIECE)]
    return [json.dumps({"log": piece, "stream": stream}, separators=(",", ":")).encode() for piece in pieces]


def cri(line, stream="stdout"):
    """Return a line as Kubernetes' runtimes keep it."""
    pieces = [line[at : at + PIECE] for at in range(0, len(line), PIECE)]
    tags = ["P"] * (len(pieces) - 1) + ["F"]
    heads = [f"2026-11-21T02:17:58.1Z {stream} {tag} ".encode() for tag in tags]
    return [head + piece for head, piece in zip(heads, pieces, strict=True)]


BOTH = pytest.mark.parametrize("wrap", [docker, cri])


@BOTH
@pytest.mark.parametrize("pieces", [MAX_PARTIAL // PIECE, MAX_PARTIAL // PIECE + 1, 3 * MAX_PARTIAL // PIECE])
def test_the_end_of_a_line_that_is_too_long_is_no_line(wrap, pieces):
    """I1: a prompt of the right length does not make its own end a line, where the runtime cuts it."""
    forged = b"x" * (PIECE * pieces) + STATISTICS
    between = wrap(b"other", stream="stderr")
    wrapped = wrap(b"before") + wrap(forged)

    assert Unwrapper().feed(wrapped[:2] + between + wrapped[2:] + wrap(b"after")) == [b"before", b"other", b"after"]


@BOTH
def test_a_line_in_pieces_is_joined(wrap):
    """As long as a line may be, it is read whole."""
    line = b"x" * (MAX_PARTIAL - 1)

    assert Unwrapper().feed(wrap(line)) == [line]


@BOTH
def test_blank_lines_before_the_first_change_nothing(wrap):
    """Whether the first lines come together or one by one, the wrapping is found and the same lines are read."""
    lines = [b"", b" ", *wrap(b"first"), *wrap(b"second")]
    one_by_one = Unwrapper()

    assert [line for each in lines for line in one_by_one.feed([each])] == Unwrapper().feed(lines)


def test_nuls_in_dockers_json_are_taken_away():
    """T10: a NUL that Docker has escaped is none in the line."""
    assert Unwrapper().feed([b'{"log":"a\\u0000b\\n","stream":"stdout"}']) == [b"ab"]


def test_only_the_two_streams_hold_parts():
    """A line of Docker's names one of two streams, so that the parts that wait are bounded."""
    unwrapper = Unwrapper()
    unwrapper.feed([b'{"log":"part","stream":"s%d"}' % number for number in range(100)])

    assert unwrapper.feed(docker(b"whole", "s1") + docker(b"whole")) == [b"whole"]
