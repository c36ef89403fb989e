# SPDX-License-Identifier: Apache-2.0
"""Advice on flags as a document: what to change, the evidence, the risk, and how to check it."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_watch.analysis.advice.advice_model import (
    OBJECTIVE,
    SHARED_PROMPT,
    Advice,
    Advised,
    Evidence,
    Observed,
    Silence,
)
from vllm_watch.analysis.advice.rule import LEAST_SECONDS
from vllm_watch.analysis.rendering.document import (
    Block,
    Column,
    Commands,
    Document,
    Paragraph,
    Section,
    Statement,
    Table,
    plain_table,
)
from vllm_watch.daemon.catalog.number_texts import duration, moment


_NOTHING = "Nothing that was observed is a clear reason to change a flag."
_BY_THE_USER = {
    OBJECTIVE: "--objective says within which latencies requests have to be answered",
    SHARED_PROMPT: "--shared-prompt-tokens how long the beginning is that the prompts have in common",
}
_BY_SOURCES = (
    "the log from the server's start has what it was started with; record and the daemon also read the command line of "
    "a server on their machine"
)
_TOO_LITTLE = f"That is too little to say anything about its flags: {duration(LEAST_SECONDS)} are needed."
_ASK_WHY = " With --verbose each rule says why."
_NO_WORK = "It had no work, so nothing can be said of its flags."
_WHY_NOT = "Why there is no other advice"


def advice_document(advised: Advised, *, is_verbose: bool = False) -> Document:
    """Return advice as a document; `is_verbose` also says why the other rules are silent."""
    sections = tuple(_section(server, advised, is_verbose=is_verbose) for server in advised.servers)
    worked = sum(server.seconds for server in advised.servers)
    return Document(f"Advice: {_outcome(advised)}", f"From {duration(worked)} of work.", sections)


def _outcome(advised: Advised) -> str:
    """Return how many flags to change there are; of none, how far that is known."""
    count = len(advised.advice)
    if count:
        return f"{count} {'flag' if count == 1 else 'flags'} to change"
    if all(server.seconds < LEAST_SECONDS for server in advised.servers):
        return "none, for want of work to judge by"
    rules = {each.rule for each in advised.silent}
    unable = {each.rule for each in advised.silent if each.unknown}
    where = " everywhere" if len(advised.servers) > 1 else ""
    unjudged = f"; {len(unable)} of {len(rules)} rules could not judge{where}" if unable else ""
    return f"nothing to change found{unjudged}"


def _section(server: Observed, advised: Advised, *, is_verbose: bool) -> Section:
    advice = [each for each in advised.advice if each.server == server.name]
    silent = [each for each in advised.silent if each.server == server.name]
    ask = "" if is_verbose else _ASK_WHY
    said: tuple[Block, ...] = () if advice else (Statement("note", _nothing(server, silent, ask)),)
    notes = tuple(Statement("note", each.text) for each in advised.notes if each.server == server.name)
    warnings = tuple(Statement("warning", warning) for warning in server.warnings)
    inner = [_advice(each) for each in advice]
    if is_verbose and silent:
        inner.append(Section(_WHY_NOT, (_silences(silent),), is_folded=True, is_open=True))
    return Section(_heading(server), (Paragraph(_lead(server)), *said, *notes, *warnings), tuple(inner))


def _nothing(server: Observed, silent: Sequence[Silence], ask: str) -> str:
    """Return why there is no advice: for want of work, of time or of what has to be known, or nothing is wrong."""
    if not server.seconds:
        return _NO_WORK
    if server.seconds < LEAST_SECONDS:
        return _TOO_LITTLE
    return f"{_unable([each for each in silent if each.unknown], len(silent)) or _NOTHING}{ask}"


def _unable(unable: Sequence[Silence], count: int) -> str:
    """Return how many of the silent rules could not judge, for want of what, and what would make it known."""
    if not unable:
        return ""
    names = dict.fromkeys(name for each in unable for name in each.unknown)
    unknown = sorted(names, key=_BY_THE_USER.__contains__)
    ways = [_BY_SOURCES] if set(unknown) - _BY_THE_USER.keys() else []
    ways += [way for name, way in _BY_THE_USER.items() if name in unknown]
    others = " The others see no clear reason to change a flag." if count > len(unable) else ""
    known = f"{', '.join(unknown)} {'is' if len(unknown) == 1 else 'are'} not known"
    return f"{len(unable)} of {count} rules could not judge, since {known}: {'; '.join(ways)}.{others}"


def _heading(server: Observed) -> str:
    parts = [server.name, server.model, None if server.version is None else f"vLLM {server.version}"]
    return " · ".join(part for part in parts if part)


def _lead(server: Observed) -> str:
    when = "" if server.start is None else f", {_period(server.start, server.end)}"
    if not server.seconds:
        return ", ".join(server.source)
    return f"It worked for {duration(server.seconds)}{when}."


def _advice(advice: Advice) -> Section:
    blocks: tuple[Block, ...] = (
        Statement("warning", advice.says),
        *(Statement("note", caveat) for caveat in advice.caveats),
        _evidence(advice.evidence),
        Paragraph(f"Expected: {advice.expected}"),
        Paragraph(f"Risk: {advice.risk}"),
        Paragraph("Check:"),
        Commands(advice.check),
    )
    return Section(f"{advice.flag}: {advice.now} → {advice.proposed}", blocks)


def _evidence(evidence: Sequence[Evidence]) -> Table:
    """Return the numbers; those of one rule are all of one time, and what load tests measured has none."""
    timed = next((each for each in evidence if each.start is not None), None)
    caption = "" if timed is None else f"In {duration(timed.seconds)} of {_period(timed.start, timed.end)}:"
    columns = (Column("Series", is_text=True), Column("Observed", is_text=True))
    return plain_table(caption, columns, tuple((each.series, each.text) for each in evidence))


def _period(start: float | None, end: float | None) -> str:
    return f"{moment(start)} to {moment(end)} UTC"


def _silences(silent: Sequence[Silence]) -> Table:
    columns = (Column("Rule", is_text=True), Column("Why it is silent", is_text=True))
    return plain_table("", columns, tuple((each.rule, each.reason) for each in silent))
