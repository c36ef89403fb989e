# SPDX-License-Identifier: Apache-2.0
"""One server as lines: what is wrong, what to do, its numbers, latencies, drafts, events, and where all comes from."""

from __future__ import annotations

from typing import cast

from vllm_watch.cli.terminal.cells import age, ago, fit
from vllm_watch.cli.terminal.frames import (
    Server,
    short_of,
    standing_of,
)
from vllm_watch.cli.terminal.lines import EMPTY, Line, Pane, Role, Span, beside, line, rule, wrapped
from vllm_watch.cli.terminal.numbers import (
    LATENCY_WIDTH,
    draft_lines,
    hits_line,
    hour_lines,
    latency_lines,
    number_lines,
    state_piece,
)
from vllm_watch.cli.terminal.tables import engine_lines, gpu_lines
from vllm_watch.daemon.catalog.number_texts import duration, significant
from vllm_watch.daemon.catalog.reasons import BY_SOURCE, SOURCE_NAMES, WRONG, SourceName
from vllm_watch.daemon.exposition.document import EventDocument, SourceDocument
from vllm_watch.daemon.exposition.findings import Finding, Weight
from vllm_watch.daemon.state.window import MIN_SECONDS


_WIDE = 130
"""Columns from which on there are two halves."""

_GAP = 3
_SOURCE_LABEL = 11
_AGE_WIDTH = 12
_FEW_EVENTS = 3
_LEAST_DRAFTS = 24
_HOUR = "Last hour: the highest, and the course"
_EVENTS = "Events of the last hour"


def server_detail(server: Server, pane: Pane) -> list[Line]:
    """Return all lines of a server; the screen shows as many as it has room for."""
    width = pane.width
    head, events = _head(server, pane), _events(server, pane)
    if width < _WIDE:
        return [
            head,
            *meaning_lines(server, width),
            *finding_lines(server, width, "wrong"),
            *_present(server, pane, every=False),
            *gpu_lines(server, width),
            *events[:_FEW_EVENTS],
            *step_lines(server, width),
            *_sources(server, pane),
            *_capacity(server, width),
            *finding_lines(server, width, "note"),
            *_titled(_HOUR, hour_lines(server, pane), width),
            *_titled("Earlier in the last hour", events[_FEW_EVENTS:], width),
        ]
    left = (width - _GAP) * 3 // 5
    right = width - _GAP - left
    halves = [_left(server, pane._replace(width=left)), _right(server, pane._replace(width=right))]
    what = wrapped(server.meaning, width) if server.meaning else []
    return [head, *what, EMPTY, *beside(halves, (left, right), _GAP)]


def _left(server: Server, pane: Pane) -> list[Line]:
    gpus = gpu_lines(server, pane.width)
    now = f"Now; tok/s over the last {MIN_SECONDS:g} s or more"
    return [
        *_titled(now, _present(server, pane, every=True), pane.width),
        EMPTY,
        *([*gpus, EMPTY] if gpus else []),
        *_titled(_HOUR, hour_lines(server, pane), pane.width),
    ]


def _right(server: Server, pane: Pane) -> list[Line]:
    nothing, width = [line("nothing")], pane.width
    wrong = [*finding_lines(server, width, "wrong"), *finding_lines(server, width, "note")]
    parts = [
        _titled("What is wrong or should be known", wrong or nothing, width),
        step_lines(server, width),
        _titled("Sources", _sources(server, pane), width),
        _titled("Capacity", _capacity(server, width), width),
        _titled(_EVENTS, _events(server, pane) or nothing, width),
    ]
    return [row for part in parts if part for row in (*part, EMPTY)]


def _titled(title: str, rows: list[Line], width: int) -> list[Line]:
    return [rule(title, width), *rows] if rows else []


def _head(server: Server, pane: Pane) -> Line:
    document = server.document
    is_up = document.start_time is not None and server.state != "down"
    up = f"up {duration(float(round(pane.at - (document.start_time or 0))))}" if is_up else ""
    starts = f"{document.starts} starts seen" if document.starts is not None and document.starts > 1 else ""
    facts = [document.model_name, f"vLLM {document.version}" if document.version else "", up, starts]
    about = " · ".join(["", *(fact for fact in facts if fact)])
    state = state_piece(server.state, server.cause)
    return line(state, lasts(server, pane.at), "  ", Span(server.name, "strong"), about)


def lasts(server: Server, at: float) -> str:
    """Return for how long a server is in its state: `` for 4 min``; empty if that is not known."""
    if server.since is None:
        return ""
    return f" for{'' if server.since.is_exact else ' at least'} {age(max(at - server.since.at, 1.0))}"


def meaning_lines(server: Server, width: int) -> list[Line]:
    """Return what the state means and the beginning of the first step, where not all steps are seen at once."""
    text = server.meaning
    if server.first_steps is not None:
        first, end, _ = _plain(server.first_steps.about(server.cause)[0]).partition(". ")
        text = f"{text} First step: {first}{end.strip()}"
    return wrapped(text, width) if text else []


def step_lines(server: Server, width: int) -> list[Line]:
    """Return all that is to be done first, and where the whole runbook is; nothing for a state that needs nothing."""
    steps = server.first_steps
    if steps is None:
        return []
    lines = [rule("What to do first", width)]
    for number, text in enumerate(steps.about(server.cause), 1):
        lines += wrapped(_plain(text), width, first=Span(f"{number}. ", "label"))
    # Words are not broken at their hyphens in an address, so that its parts can be put together again.
    parts = [steps.url[start : start + width] for start in range(0, len(steps.url), width)]
    return [*lines, *wrapped(f"All of it, runbook {steps.runbook}:", width), *(line(part) for part in parts)]


def _plain(text: str) -> str:
    return text.replace("`", "")


def finding_line(finding: Finding, width: int) -> list[Line]:
    """Return one finding, with its mark."""
    mark: Span = Span("! ", "wrong") if finding.weight == "wrong" else Span("- ", "note")
    return wrapped(finding.text, width, first=mark, role=finding.weight)


def finding_lines(server: Server, width: int, weight: Weight) -> list[Line]:
    """Return what is wrong with a server, or what should be known."""
    return [row for finding in server.findings if finding.weight == weight for row in finding_line(finding, width)]


def _present(server: Server, pane: Pane, *, every: bool) -> list[Line]:
    """
    Return the numbers of now, and the latencies of the last minute.

    One engine has its drafts and the hits of its caches: the drafts beside the latencies if there is room, else below.
    """
    numbers, latencies = number_lines(server, pane), latency_lines(server.latencies, every=every)
    if len(server.engines) != 1:
        return [*numbers, *engine_lines(server, pane.width), *latencies]
    (engine,) = server.engines
    room = min(pane.width - LATENCY_WIDTH - _GAP, LATENCY_WIDTH)
    if room < _LEAST_DRAFTS:
        return [*numbers, *latencies, hits_line(engine), *draft_lines(engine, pane.width)]
    both = beside([latencies, draft_lines(engine, room)], (LATENCY_WIDTH, room), _GAP)
    return [*numbers, *both, hits_line(engine)]


def _sources(server: Server, pane: Pane) -> list[Line]:
    """Return what each source says about itself; those that work take one line."""
    sources = [source for source in server.document.sources if source.source in BY_SOURCE]
    return [row for source in sources for row in _source(server, source, pane)]


def _source(server: Server, source: SourceDocument, pane: Pane) -> list[Line]:
    how = standing_of(source, server.document)
    last = "" if source.last_reading is None else f", read {ago(pane.at - source.last_reading)}"
    if how == "not read":
        last = ""
    elif not last and how in WRONG:
        last = ", nothing read yet"  # Of one that is well the words tell: a log without statistics yet.
    # What to do about one that fails is among what is wrong.
    name = Span(SOURCE_NAMES[cast("SourceName", source.source)].ljust(_SOURCE_LABEL), "label")
    return wrapped(f"{how}{last}: {short_of(source)}", pane.width, first=name, role="wrong" if how in WRONG else "text")


def _capacity(server: Server, width: int) -> list[Line]:
    """Return how many tokens per second each engine sustains; why that is not known is among the notes."""
    lines: list[Line] = []
    for engine in server.engines:
        best = next(iter(engine.capacity.values()), None)
        if best is None or best.tokens_per_second is None:
            continue
        bounds = f"{significant(best.low)} to {significant(best.high)}"
        text = f"{significant(best.tokens_per_second)} tok/s ({bounds}): {best.meaning}"
        text = f"{_of_several(engine.engine, server)}{text}"
        lines += wrapped(text, width, first=Span("capacity".ljust(_SOURCE_LABEL), "label"))
    return lines


def _events(server: Server, pane: Pane) -> list[Line]:
    return [
        row
        for event in reversed(server.document.events or ())
        for row in _event(event, _of_several(event.engine, server), pane)
    ]


def _of_several(engine: str | None, server: Server) -> str:
    return f"engine {engine}: " if engine is not None and len(server.engines) > 1 else ""


def _event(event: EventDocument, subject: str, pane: Pane) -> list[Line]:
    when = Span(fit(ago(pane.at - event.at), _AGE_WIDTH), "label")
    times = f" ({event.count} times)" if event.count > 1 else ""
    role: Role = "wrong" if event.kind in {"failure", "xid"} else "text"
    return wrapped(f"{subject}{event.text}{times}", pane.width, first=when, role=role)
