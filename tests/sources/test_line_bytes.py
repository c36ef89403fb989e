# SPDX-License-Identifier: Apache-2.0
"""Bytes that no one expects: giant lines and odd characters end no line early, join no two, and take no memory."""

from __future__ import annotations

import pytest

from tests.support.logs import run_child, stats_line


ODD = {
    "invalid UTF-8": b"\xff\xfe\x80 text",
    "half a character": "é".encode()[:1],
    "overlong": b"\xc0\xaf",
    "surrogate": b"\xed\xa0\x80",
    "BOM": b"\xef\xbb\xbf",
    "CR": b"a\rb",
    "VT": b"a\x0bb",
    "FF": b"a\x0cb",
    "FS": b"a\x1cb",
    "NEL": b"a\x85b",
    "NEL in UTF-8": "a\x85b".encode(),
    "LINE SEPARATOR": "a\u2028b".encode(),
    "PARAGRAPH SEPARATOR": "a\u2029b".encode(),
    "ANSI": b"\x1b[31mred\x1b[0m\x1b]0;title\x07\x1b[2J",
    "bidi": "a\u202eb".encode(),
    "control": bytes(range(1, 10)),
    "NUL": b"a\0b",
}


def test_a_giant_line_takes_no_memory(tmp_path):
    """T19: a line of 100 MiB is dropped and counted while memory stays as it is, and the next one is read."""
    grown = run_child(
        """
        import resource
        from tests.support.logs import Log, stats_line
        log = Log(sys.argv[1])
        log.grow()
        piece = b"x" * (1 << 20)
        log.append(piece)
        log.poll()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(99):
            log.append(piece)
            log.poll()
        log.append(b"\\n" + stats_line(4))
        assert [4] == log.poll(), "the next line is not read"
        assert 1 == log.counts.long_lines, log.counts
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
        """,
        tmp_path / "vllm.log",
    )

    assert int(grown) < 4 * 1024


def test_a_restart_inside_a_giant_line(log):
    """T19: what comes after a restart of a line that is being dropped is dropped too: it may look like any line."""
    log.grow(1)
    log.append(b"x" * 100_000)
    log.poll()
    stopped = log.stop()
    log.start(stopped)
    first = log.poll()
    log.append(stats_line(66) + stats_line(2))

    assert ([], [2]) == (first, log.poll())


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_odd_bytes_are_inside_their_line(followed, odd):
    """T20: whatever bytes a line holds but a line feed, it is one line, and statistics quoted behind them are none."""
    followed.append(odd + stats_line(66) + stats_line(1) + odd + b"\n" + stats_line(2))

    assert [1, 2] == followed.poll()
    assert 4 == followed.counts.lines
