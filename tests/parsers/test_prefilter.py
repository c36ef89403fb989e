# SPDX-License-Identifier: Apache-2.0
"""The quick look that dismisses most lines: it loses nothing, and is worth its while."""

from __future__ import annotations

import pytest

from tests.parsers.releases import RELEASES, log_lines

from vllm_watch_parsers.line import is_irrelevant, parse_line


@pytest.mark.parametrize("release", RELEASES)
def test_no_line_that_says_something_is_dismissed(release):
    """Over a whole log of each release, the lines that are dismissed are ones that give no event."""
    kept, record = 0, None
    for line in log_lines(release):
        parsed = parse_line(line, record)
        is_asked = record is None and not line.endswith(b"\r")
        if is_asked and parsed.events:
            assert not is_irrelevant(line), line
            kept += 1
        record = parsed.record

    assert kept > 50


@pytest.mark.parametrize(
    "line",
    [
        b"INFO 11-21 02:35:10 [launcher.py:36] Route: /health, Methods: GET",
        b"(APIServer pid=7) INFO 11-21 02:35:10 [model.py:744] Resolved architecture: Qwen3ForCausalLM",
        b"(APIServer pid=7) WARNING 11-21 02:35:10 [vllm.py:1703] Enforce eager set",
        b"INFO 11-21 02:35:10 logger.py:36] Received request cmpl-1: prompt: 'x', params: SamplingParams(n=1)",
        b"Loading safetensors checkpoint shards:  50% Completed | 1/2",
        b"",
    ],
)
def test_ordinary_lines_are_dismissed(line):
    """What makes up most of a log beside access lines is dismissed at once."""
    assert is_irrelevant(line) == bool(line)


@pytest.mark.parametrize(
    "line",
    [
        b"RuntimeError('NCCL error: INFO 11-21 02:35:10 [x.py:1] y",
        b'{ "message": "Application startup complete.", "name": "uvicorn.error", "levelname": "INFO ", "a": [[1] ]}',
    ],
)
def test_a_record_that_a_line_quotes_dismisses_nothing(line):
    """What a line says before it names a level is looked at, whatever record it quotes behind it."""
    assert parse_line(line).events
