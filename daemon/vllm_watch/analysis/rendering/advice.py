# SPDX-License-Identifier: Apache-2.0
"""Advice on flags as a document: what to change, the evidence, the risk, and how to check it."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_watch.analysis.advice.advice_model import (
    OBJECTIVE,
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
from vllm_watch.daemon.catalog.language import N_, _, listed, sentences
from vllm_watch.daemon.catalog.number_texts import duration, moment


_NOTHING = N_("Nothing that was observed is a clear reason to change a flag.")
_BY_SOURCES = N_(
    "the log from the server's start has what it was started with; record and the daemon also read the command line of "
    "a server on their machine"
)


def advice_document(advised: Advised, *, is_verbose: bool = False) -> Document:
    """Return advice as a document; `is_verbose` also says why the other rules are silent."""
    sections = tuple(_section(server, advised, is_verbose=is_verbose) for server in advised.servers)
    worked = sum(server.seconds for server in advised.servers)
    title = _("Advice: {outcome}", outcome=_outcome(advised))
    return Document(title, _("From {time} of work.", time=duration(worked)), sections)


def _outcome(advised: Advised) -> str:
    """Return how many flags to change there are; of none, how far that is known."""
    count = len(advised.advice)
    if count:
        return _("1 flag to change") if count == 1 else _("{count} flags to change", count=count)
    if all(server.seconds < LEAST_SECONDS for server in advised.servers):
        return _("none, for want of work to judge by")
    rules = {each.rule for each in advised.silent}
    unable = {each.rule for each in advised.silent if each.unknown}
    if not unable:
        return _("nothing to change found")
    return _("nothing to change found; {count} of {rules} rules could not judge", count=len(unable), rules=len(rules))


def _section(server: Observed, advised: Advised, *, is_verbose: bool) -> Section:
    advice = [each for each in advised.advice if each.server == server.name]
    silent = [each for each in advised.silent if each.server == server.name]
    said: tuple[Block, ...] = () if advice else (Statement("note", _nothing(server, silent, is_verbose=is_verbose)),)
    notes = tuple(Statement("note", each.text) for each in advised.notes if each.server == server.name)
    warnings = tuple(Statement("warning", warning) for warning in server.warnings)
    inner = [_advice(each) for each in advice]
    if is_verbose and silent:
        inner.append(Section(_("Why there is no other advice"), (_silences(silent),), is_folded=True, is_open=True))
    return Section(_heading(server), (Paragraph(_lead(server)), *said, *notes, *warnings), tuple(inner))


def _nothing(server: Observed, silent: Sequence[Silence], *, is_verbose: bool) -> str:
    """Return why there is no advice: for want of work, of time or of what has to be known, or nothing is wrong."""
    if not server.seconds:
        return _("It had no work, so nothing can be said of its flags.")
    if server.seconds < LEAST_SECONDS:
        little = N_("That is too little to say anything about its flags: {time} are needed.")
        return _(little, time=duration(LEAST_SECONDS))
    said = _unable([each for each in silent if each.unknown], len(silent)) or [_(_NOTHING)]
    return sentences(said if is_verbose else [*said, _("With --verbose each rule says why.")])


def _unable(unable: Sequence[Silence], count: int) -> list[str]:
    """Return how many of the silent rules could not judge, for want of what, and what would make it known."""
    if not unable:
        return []
    names = dict.fromkeys(name for each in unable for name in each.unknown)
    unknown = sorted(names, key=OBJECTIVE.__eq__)
    ways = [_(_BY_SOURCES)] if set(unknown) - {OBJECTIVE} else []
    ways += [_("--objective says within which latencies requests have to be answered")] * (OBJECTIVE in unknown)
    first = _(
        "{unable} of {count} rules could not judge for want of: {names} ({ways}).",
        unable=len(unable),
        count=count,
        names=listed(map(_, unknown)),
        ways=_("; ").join(ways),
    )
    return [first] if count == len(unable) else [first, _("The others see no clear reason to change a flag.")]


def _heading(server: Observed) -> str:
    parts = [server.name, server.model, None if server.version is None else f"vLLM {server.version}"]
    return " · ".join(part for part in parts if part)


def _lead(server: Observed) -> str:
    if not server.seconds:
        return listed(server.source)
    period = _period(server.start, server.end)
    return _("It worked for {time}, {period}.", time=duration(server.seconds), period=period)


def _advice(advice: Advice) -> Section:
    blocks: tuple[Block, ...] = (
        Statement("warning", advice.says),
        *(Statement("note", caveat) for caveat in advice.caveats),
        _evidence(advice.evidence),
        Paragraph(_("Expected: {text}", text=advice.expected)),
        Paragraph(_("Risk: {text}", text=advice.risk)),
        Paragraph(_("Check:")),
        Commands(advice.check),
    )
    return Section(f"{advice.flag}: {advice.now} → {advice.proposed}", blocks)


def _evidence(evidence: Sequence[Evidence]) -> Table:
    """Return the numbers; those of one rule are all of one time, and what load tests measured has none."""
    timed = next((each for each in evidence if each.start is not None), None)
    caption = ""
    if timed is not None:
        period = _period(timed.start, timed.end)
        caption = _("In {time} of {period}:", time=duration(timed.seconds), period=period)
    columns = (Column(_("Series"), is_text=True), Column(_("Observed"), is_text=True))
    return plain_table(caption, columns, tuple((each.series, each.text) for each in evidence))


def _period(start: float | None, end: float | None) -> str:
    return _("{start} to {end} UTC", start=moment(start), end=moment(end))


def _silences(silent: Sequence[Silence]) -> Table:
    columns = (Column(_("Rule"), is_text=True), Column(_("Why it is silent"), is_text=True))
    return plain_table("", columns, tuple((each.rule, each.reason) for each in silent))
