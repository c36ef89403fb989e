# SPDX-License-Identifier: Apache-2.0
"""Container runtimes cut lines where whoever made them long wants it: what stands behind a cut is no line."""

from __future__ import annotations

import json

import pytest

from vllm_watch.daemon.reading.framing import MAX_FOREIGN, MAX_LINE, LineReader


CUT_AT = 16 * 1024
FORGED = "INFO 11-21 02:35:10 [loggers.py:300] forged"


def docker(text, stream="stdout"):
    """Return what Docker writes of one read of a stream: it escapes for HTML, too."""
    escaped = json.dumps(text).replace("<", "\\u003c").replace("&", "\\u0026")
    return f'{{"log":{escaped},"stream":"{stream}","time":"2026-11-21T02:35:10.123456789Z"}}\n'.encode()


def cri(text, stream="stdout"):
    """Return what a Kubernetes runtime writes."""
    tag = "F" if text.endswith("\n") else "P"
    return f"2026-11-21T02:35:10.123456789Z {stream} {tag} {text.removesuffix(chr(10))}\n".encode()


@pytest.fixture(params=[docker, cri], ids=["docker", "cri"])
def wrap(request):
    """Either way of wrapping."""
    return request.param


@pytest.fixture
def reader():
    """A file that is read from its start."""
    return LineReader()


def parts(text, wrap, stream="stdout"):
    """Return a line as a runtime cuts it."""
    return b"".join(wrap(text[at : at + CUT_AT], stream) for at in range(0, len(text), CUT_AT))


def test_parts_are_joined_by_stream(reader, wrap):
    """T1: parts of lines of both streams may take turns."""
    data = wrap("one ") + wrap("uno ", "stderr") + wrap("two\n") + wrap("due\n", "stderr")

    assert [b"one two", b"uno due"] == reader.feed(data)


@pytest.mark.parametrize("first", [1, 20, 63, 64, 65, 100])
def test_a_file_is_recognised_however_little_is_read_first(reader, wrap, first):
    """T1: the first bytes of a file may come alone."""
    data = wrap("one " * 30 + "\n") + wrap("two\n")

    assert [b"one " * 30, b"two"] == reader.feed(data[:first]) + reader.feed(data[first:])


@pytest.mark.parametrize("cuts", [5, 9])
def test_a_line_at_a_cut_of_a_long_line_is_none(reader, wrap, cuts):
    """I2: text that stands behind a cut of a prompt is dropped with the prompt, up to the line's end."""
    long = "".join(("x" * CUT_AT, FORGED.ljust(CUT_AT))[number % 2] for number in range(cuts)) + FORGED

    assert [b"x" * 1024 + b"\0", b"next"] == reader.feed(parts(long + "\n", wrap) + wrap("next\n"))
    assert 1 == reader.long_lines


def test_a_long_line_hides_nothing_of_the_other_stream(reader, wrap):
    """I2: while a line of one stream is dropped, the other one is read."""
    dropped = [wrap("x" * CUT_AT) + wrap("hello\n", "stderr") for _ in range(8)]

    lines = reader.feed(b"".join(dropped) + wrap(FORGED + "\n"))

    assert ([b"hello"] * 8, 1) == (lines[:-1], reader.long_lines)
    assert b"\0" == lines[-1][-1:]


@pytest.mark.parametrize("text", [MAX_LINE + 1, MAX_LINE])
def test_the_longest_line_is_as_long_as_without_a_container(reader, wrap, text):
    """I2: joined lines have the length of others at most."""
    (line,) = reader.feed(parts("y" * text + "\n", wrap))

    assert (text == MAX_LINE) == (line == b"y" * text)


@pytest.mark.parametrize("texts", [("x" * MAX_LINE, "y\r\n"), ("x" * MAX_LINE, "y\r", "\n"), ("x" * 90_000 + "\r\n",)])
def test_a_record_that_a_dropped_line_opens_stays_open(reader, wrap, texts):
    r"""I1: the ``\r`` at the end of a dropped line is known: what follows continues its record."""
    assert [b"x" * 1024 + b"\0\r"] == reader.feed(b"".join(wrap(text) for text in texts))


def test_a_part_made_of_what_docker_escapes_is_no_long_line(reader):
    """I2: Docker's cuts are at 16 KiB of text, however many bytes it takes to write them."""
    text = "<" * CUT_AT + "&" * CUT_AT

    assert [text.encode()] == reader.feed(docker("begin\n") + parts(text + "\n", docker))[1:]


@pytest.mark.parametrize("torn", [b"x" * 200_000, b'{"log":"torn', b"text"])
def test_behind_a_line_that_cannot_be_read_no_part_is_believed(reader, wrap, torn):
    """I2: it may have been a part of any line of either stream."""
    assert [b"one"] == reader.feed(wrap("one\n") + torn + b"\n")
    assert [b"\0", b"\0\r", b"two", b"three"] == reader.feed(
        wrap(FORGED + "\n") + wrap(FORGED + "\r\n", "stderr") + wrap("two\n") + wrap("three\n", "stderr")
    )


def test_a_stranger_s_text_does_not_make_a_log_a_container_s(reader):
    """I2: a file whose first line only looks wrapped is read after some lines that are not."""
    reader.feed(docker("a stranger's first line\n") + b"plain\n" * MAX_FOREIGN)

    assert [b"plain"] == reader.feed(b"plain\n")


def test_other_streams_than_two_are_none(reader):
    """E4: what is kept by stream is bounded."""
    assert [b"a"] == reader.feed(docker("a\n") + docker("b", "stdin") + docker("c", "x" * 10))


def test_a_new_file_goes_on_where_the_old_one_ended(reader, wrap):
    """I2: Docker begins a new file in the middle of a line."""
    reader.feed(wrap("one ") + parts("x" * 5 * CUT_AT, wrap, "stderr"))
    new = LineReader()
    new.follow(reader)

    assert [b"one two", b"x" * 1024 + b"\0"] == new.feed(wrap("two\n") + wrap(FORGED + "\n", "stderr"))


def test_where_nothing_is_known_a_line_s_end_is_awaited(reader, wrap):
    """I2: from the middle of a file, each stream is believed after its next line end; what is dropped is counted."""
    reader.lose_place(wrap("first"))

    data = wrap(FORGED) + wrap("err\n", "stderr") + wrap(FORGED + "\n") + wrap("a\n") + wrap("b\n", "stderr")
    assert [b"\0", b"\0", b"a", b"b"] == reader.feed(data)
    assert 2 == reader.long_lines


@pytest.mark.parametrize("size", [1, 10, 63, 64, 100, 10_000])
def test_how_a_file_is_wrapped_does_not_depend_on_the_pieces_it_is_read_in(reader, wrap, size):
    """T1: a first line that comes in pieces tells as much as one that comes whole."""
    data = wrap("first " + "x" * 200 + "\n") + wrap("second\n")
    lines = [line for at in range(0, len(data), size) for line in reader.feed(data[at : at + size])]

    assert [b"first " + b"x" * 200, b"second"] == lines


def test_blank_lines_do_not_lose_the_place(reader, wrap):
    """T1: an empty line holds no part of any line, before the first one and later."""
    assert [b"one two", b"three"] == reader.feed(b"\n" + wrap("one ") + b"\n" + wrap("two\n") + wrap("three\n"))


def test_lines_are_read_from_where_it_shows_that_nothing_is_wrapped(reader):
    """T1: also if that shows in the middle of a piece."""
    data = docker("a stranger's first line\n") + b"foreign\n" * MAX_FOREIGN + b"plain\n"

    assert [b"plain"] == reader.feed(data)[1:]


def test_nuls_in_dockers_json_are_taken_away(reader):
    """T10: a NUL that Docker has escaped is none in the line: one there stands where a line was cut off."""
    assert [b"ab"] == reader.feed(docker("a\0b\n"))
