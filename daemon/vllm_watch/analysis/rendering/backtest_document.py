# SPDX-License-Identifier: Apache-2.0
"""Which alerts would have fired, as a document and as JSON."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from vllm_watch.analysis.backtest.fired import Alert, NotJudged, SourceResult
from vllm_watch.analysis.rendering.document import (
    Block,
    Cells,
    Column,
    Document,
    Group,
    Paragraph,
    Section,
    Statement,
    Table,
)
from vllm_watch.analysis.rendering.json_output import encoded
from vllm_watch.daemon.catalog.codes import severity_rank
from vllm_watch.daemon.catalog.number_texts import MISSING, duration


_NOT_SHOWN = frozenset({"job", "instance", "tier", "model_name", "bound"})
"""Labels that tell no alert from another one of the same server."""

_FEW = 2
"""A reason that keeps so few alerts from being judged is one of the others."""

_TO = "–"  # noqa: RUF001 - A dash is what it is.


def backtest_json(results: Sequence[SourceResult]) -> str:
    """Return results as JSON: all alerts in one list, each with its source."""
    rows: dict[str, list[dict[str, Any]]] = {"alerts": [], "pending": [], "not_judged": []}
    for result in results:
        source = {"source": result.source}
        rows["alerts"] += [{**_row(alert), **source} for alert in result.alerts]
        rows["pending"] += [{**_row(alert), **source} for alert in result.pending]
        rows["not_judged"] += [
            {
                "alertname": each.alertname,
                "severity": each.severity,
                "reason": each.reason,
                **({"unknown": list(each.unknown)} if each.unknown else {}),
                **source,
            }
            for each in result.not_judged
        ]
    return encoded({**rows, "sources": [_source_row(result) for result in results]})


def backtest_document(results: Sequence[SourceResult], *, is_verbose: bool = False) -> Document:
    """Return results as a document, with times in this machine's zone, and a section for each source."""
    sections = tuple(_section(result, _Times(result), is_verbose=is_verbose) for result in results)
    return Document("Which alerts would have fired", f"rules evaluated every {results[0].interval} s", sections)


class _Times:
    """Writes the times of one source: without their date if all are of one day."""

    def __init__(self, result: SourceResult) -> None:
        first, last = self._local(result.start), self._local(result.end)
        self._form = "%H:%M:%S" if first.date() == last.date() else "%m-%d %H:%M:%S"
        offset = first.strftime("%z")
        self.zone = "UTC" if offset == "+0000" else f"UTC{offset[:3]}:{offset[3:5]}"
        self.whole = (
            f"{first:%Y-%m-%d %H:%M:%S} to {last:%Y-%m-%d %H:%M:%S} {self.zone} "
            f"({duration(result.end - result.start)}), a value every {result.step:g} s"
        )

    def at(self, moment: float) -> str:
        """Return a time."""
        return self._local(moment).strftime(self._form)

    def span(self, alert: Alert) -> str:
        """Return from when to when."""
        return f"{self.start(alert)}{_TO}{self.end(alert)}"

    def start(self, alert: Alert) -> str:
        """Return from when."""
        return f"{'before ' if alert.began_before else ''}{self.at(alert.start)}"

    def end(self, alert: Alert) -> str:
        """Return until when."""
        return "the end" if alert.end is None else self.at(alert.end)

    def _local(self, moment: float) -> datetime:
        return datetime.fromtimestamp(moment).astimezone()


def _section(result: SourceResult, times: _Times, *, is_verbose: bool) -> Section:
    blocks: list[Block] = [Paragraph(times.whole)]
    blocks += [Statement("warning", f"{text}.") for text in result.warnings]
    blocks += [
        Statement("warning", f"Nothing was scraped from {times.at(gap.start)} to {times.at(gap.end)}.")
        for gap in result.gaps
    ]
    blocks.append(_listed(result.alerts, times) if result.alerts else Statement("good", "No alert fired."))
    pending: dict[str, list[Alert]] = defaultdict(list)
    for alert in result.pending:
        pending[alert.alertname].append(alert)
    if pending:
        listed = "; ".join(f"{name} {_pending(alerts, times)}" for name, alerts in pending.items())
        blocks.append(Statement("note", f"Pending, but did not fire: {listed}."))
    blocks += _not_judged(result.not_judged, is_verbose=is_verbose)
    return Section(result.source, tuple(blocks))


def _listed(alerts: Sequence[Alert], times: _Times) -> Table:
    """Return alerts by what they are about, below its title, the worst severity first."""
    columns = (Column("Alert", is_text=True), Column("From"), Column("To"), Column("For"))
    by_place: dict[tuple[str, str], list[Cells]] = defaultdict(list)
    for alert in alerts:
        lasted = MISSING if alert.end is None else duration(alert.end - alert.start)
        cells = (alert.alertname, times.start(alert), times.end(alert), lasted)
        by_place[alert.severity, labels_text(alert)].append(cells)
    places = sorted(by_place, key=lambda place: severity_rank(place[0]))
    return Table("", columns, tuple(Group(_title(*place), tuple(by_place[place])) for place in places))


def _title(severity: str, of: str) -> str:
    return f"{severity or 'no severity'}: {of}" if of else severity or "no severity"


def labels_text(alert: Alert) -> str:
    """Return what tells an alert from others of its name: ``qwen, engine 0, event=engine_dead``."""
    others = {name: value for name, value in alert.labels.items() if name not in _NOT_SHOWN | {"server", "engine"}}
    parts = [alert.labels[name] for name in ("server", "instance") if name in alert.labels][:1]
    parts += [f"engine {alert.labels['engine']}"] if "engine" in alert.labels else []
    return ", ".join([*parts, *(f"{name}={value}" for name, value in sorted(others.items()))])


def _not_judged(alerts: Sequence[NotJudged], *, is_verbose: bool) -> Iterator[Statement]:
    """Yield of what nothing is said, and why: what a flag alone would decide by name, the rest by numbers."""
    reasons: dict[str, list[NotJudged]] = defaultdict(list)
    for each in alerts:
        reasons[each.reason].append(each)
    counted, others = [], 0
    for reason, found in sorted(reasons.items(), key=lambda item: (-len(item[1]), item[0])):
        if is_verbose or found[0].unknown:
            yield Statement("unknown", f"Not judged, because {reason}: {', '.join(each.alertname for each in found)}.")
        elif len(found) > _FEW:
            counted.append(f"{len(found)} alerts, because {reason}")
        else:
            others += len(found)
    if others:
        counted.append(f"{others} {'more' if counted else 'alerts'}, for other reasons")
    if counted:
        yield Statement("unknown", f"Not judged: {'; '.join(counted)}. With --verbose each is named.")


def _pending(alerts: Sequence[Alert], times: _Times) -> str:
    if len(alerts) == 1:
        return times.span(alerts[0])
    longest = max((alert.end - alert.start for alert in alerts if alert.end is not None), default=None)
    lasted = "" if longest is None else f", up to {duration(longest)}"
    return f"({len(alerts)} times{lasted})"


def _row(alert: Alert) -> dict[str, Any]:
    row = {**alert._asdict(), "labels": dict(alert.labels)}
    return {name: value for name, value in row.items() if value is not None}


def _source_row(result: SourceResult) -> dict[str, Any]:
    return {
        "source": result.source,
        "start": result.start,
        "end": result.end,
        "step": result.step,
        "evaluation_interval": result.interval,
        "warnings": list(result.warnings),
        "gaps": [gap._asdict() for gap in result.gaps],
    }
