# SPDX-License-Identifier: Apache-2.0
"""The help: the keys, the states, and what the abbreviations mean."""

from __future__ import annotations

from vllm_watch.cli.terminal.cells import Cells
from vllm_watch.cli.terminal.heading import rule
from vllm_watch.cli.terminal.keys import KEYS
from vllm_watch.cli.terminal.lines import EMPTY, Line, Span, line, wrapped
from vllm_watch.cli.terminal.pieces import state_piece
from vllm_watch.daemon.catalog.states import BEST_TO_WORST, STATES
from vllm_watch.daemon.state.window import MIN_SECONDS


_KEY = 24
_STATE = 13
_WORD = 13

WORDS = (
    ("output", "tokens that an engine generates, in a second; prompt: tokens of prompts that it reads"),
    ("tok/s", f"over the last {MIN_SECONDS:g} s or more; the state, running and waiting are of one moment"),
    ("running", "requests that get tokens, and the most there can be (max-num-seqs)"),
    ("waiting", "requests in the queue; deferred: of these, those that wait for something remote"),
    ("KV cache", "how much of its tokens is in use; when it is full, requests wait or are preempted"),
    ("TTFT", "time to first token"),
    ("TPOT", "time per output token, mean over a request"),
    ("ITL", "inter-token latency: from one token to the next"),
    ("p50 p95 p99", "half of the values are below p50, 95 % below p95, 99 % below p99; ! is over the objective"),
    ("~", "an estimate: vLLM counts latencies in ranges, and this one's end is twice its start or more"),
    (">, <", "above the start of a range too wide for an estimate; below the end of the first one"),
    ("12.5s", "a latency in seconds; those without a unit are in milliseconds"),
    ("prefix hits", "tokens of prompts that were in the cache already"),
    ("tokens a step", "how many tokens a step gives with speculative decoding: accepted drafts and one more"),
    ("draft 1, 2 …", "how many of the drafts are accepted at each position"),
    ("log, /metrics", "the source of a number, and its age there"),
)  # fmt: skip


def help_screen(width: int, cells: Cells) -> list[Line]:
    """Return the whole help; the screen shows as much as it has room for."""
    lines = [rule("Keys", width, cells)]
    for key in KEYS:
        shown = ", ".join(each for each in (key.shown, key.others) if each)
        lines += wrapped(key.text, width, first=Span(cells.fit(shown, _KEY), "key"))
    lines += [EMPTY, rule("States, the worst first", width, cells)]
    for state in reversed(BEST_TO_WORST):
        piece = state_piece(state, cells)
        rows = wrapped(STATES[state].short, max(width - _STATE, 1))
        pad = Span(" " * (_STATE - len(piece.text)))
        lines += [line(piece, pad, *rows[0].spans), *(line(" " * _STATE, *row.spans) for row in rows[1:])]
    lines += [EMPTY, rule("Words", width, cells)]
    for word, text in WORDS:
        lines += wrapped(text, width, first=Span(cells.fit(word, _WORD + 2), "label"))
    lines += [EMPTY, line(Span(f"{cells.glyphs.dash} is what is not known; it is never 0.", "text"))]
    return lines
