# SPDX-License-Identifier: Apache-2.0
"""Which alerts cannot be judged over some values, and why: that one did not fire is then no finding."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from vllm_watch.analysis.backtest.durations import duration_seconds
from vllm_watch.analysis.backtest.expressions import ANY_NAME, look_back, offset_back, reads_calendar, selected_names
from vllm_watch.analysis.backtest.fired import ALWAYS_FIRING
from vllm_watch.analysis.backtest.model import NotJudged
from vllm_watch.analysis.backtest.rule_set import RuleSet, needed
from vllm_watch.analysis.backtest.subject import Subject
from vllm_watch.analysis.loadtest.number_texts import duration
from vllm_watch.daemon.catalog.alert_needs import AlertNeeds, Need, alert_needs
from vllm_watch.daemon.catalog.reasons import BY_SOURCE
from vllm_watch.daemon.catalog.series import DAEMON, PREFIX, SERIES


PRESENCE = f"{PREFIX}source_up"
"""Its labels tell which sources a server has."""

_GPUS = f"{PREFIX}server_gpu_info"
"""Each GPU that is known of a server has it, whoever reads the GPU."""

_OF_DAEMON = frozenset(series.name for series in DAEMON.series)
_NO_DAEMON = "a log or a recording shows nothing of vllm-watch itself"
_WAITS = "they wait longer than the values last"
_COMPARES = "they compare with what was before the values begin"
_NO_SERIES = "the server does not report what they watch"
_CALENDAR = "it depends on the date or the time of day, and promtool evaluates all rules in 1970"


def without_calendar(rules: RuleSet) -> RuleSet:
    """Return a set of rules without the alerts that depend on the date or the time of day."""
    wrong = set(_of_calendar(rules))
    return rules._replace(groups=tuple(needed(rules.groups, {rule["alert"] for rule in rules.alerts} - wrong)))


def not_judged(rules: RuleSet, subject: Subject, fired: Collection[str], *, is_shipped: bool) -> Iterator[NotJudged]:
    """
    Yield the alerts of which it says nothing that they did not fire.

    Args:
        rules: All rules.
        subject: What they were evaluated over.
        fired: The names of the alerts that fired.
        is_shipped: Whether they are the package's, of which is known what they need.
    """
    calendar = set(_of_calendar(rules))
    shown = set(_shown(subject))
    for rule in rules.alerts:
        name = rule["alert"]
        if name in fired or name in ALWAYS_FIRING:
            continue
        found = NotJudged(name, str(rule.get("labels", {}).get("severity", "")), "")
        if name in calendar:
            yield found._replace(reason=_CALENDAR)
        elif is_shipped and name in alert_needs():
            lacking = _lacking(found, alert_needs()[name], subject, shown)
            yield from _too_short(found, rule, rules.recorded, subject) if lacking is None else [lacking]
        elif absent := _not_there(rule, rules.recorded, subject):
            yield _without_series(found, absent)
        else:
            yield from _too_short(found, rule, rules.recorded, subject)


def _too_short(
    found: NotJudged, rule: Mapping[str, Any], recorded: Mapping[str, str], subject: Subject
) -> Iterator[NotJudged]:
    waits, past = str(rule.get("for", "0s")), offset_back(rule["expr"], recorded)
    if duration_seconds(waits) >= subject.seconds:
        reason, shared = f"it waits {waits} before it fires, longer than the values last", _WAITS
        yield found._replace(reason=reason, shared=shared, needed=waits)
    elif past >= _reach(subject):
        needed_past = duration(past)
        reason = f"it compares with what was {needed_past} before, when there are no values"
        yield found._replace(reason=reason, shared=_COMPARES, needed=needed_past)


def looking_further(rules: RuleSet, subject: Subject) -> Iterator[tuple[str, float]]:
    """Yield the alerts that look back further than the values reach at their end, with the seconds that they do."""
    for rule in rules.alerts:
        seconds = look_back(rule["expr"], rules.recorded)
        if seconds > _reach(subject):
            yield rule["alert"], seconds


def _reach(subject: Subject) -> float:
    return subject.seconds + subject.lead * subject.step


def _of_calendar(rules: RuleSet) -> Iterator[str]:
    for rule in rules.alerts:
        below = RuleSet("", (), tuple(needed(rules.groups, {rule["alert"]})))
        if any(reads_calendar(each["expr"]) for each in below.rules):
            yield rule["alert"]


def _shown(subject: Subject) -> Iterator[Need]:
    """Yield the series that are there, as alerts need them."""
    names = subject.names
    for series in SERIES.values():
        full = f"{series.full_name}_count" if series.type == "histogram" else series.full_name
        if (full, "") in names:
            yield Need(series.name)
        yield from (Need(series.name, source) for source in BY_SOURCE if (full, source) in names)
    yield Need("engine_stall_info")  # It is there while an engine is stalled.
    if (PRESENCE, "log") in names:
        yield Need("engine_state", "log")


def _lacking(found: NotJudged, needs: AlertNeeds, subject: Subject, shown: Collection[Need]) -> NotJudged | None:
    """Return why nothing can be said of an alert of the package for want of series; `None` if it lacks none."""
    if not subject.has_daemon and all(need.series in _OF_DAEMON for way in needs.ways for need in way):
        return found._replace(reason=_NO_DAEMON)
    unknown = needs.unknown_flags(shown)
    if unknown:
        names = f"{' and '.join(unknown)} {'is' if len(unknown) == 1 else 'are'}"
        return found._replace(reason=f"{names} not known", unknown=tuple(unknown))
    missing = needs.missing(shown)
    reasons = [reason for need in missing if (reason := _reason(need, subject)) is not None]
    if needs.several_engines and subject.engines <= 1:
        reasons.append("there is one engine")
    if reasons:
        return found._replace(reason=" and ".join(dict.fromkeys(reasons)))
    return _without_series(found, [SERIES[need.series].full_name for need in missing]) if missing else None


def _without_series(found: NotJudged, names: Sequence[str]) -> NotJudged:
    reason = " and ".join(f"there is no series {name}" for name in names)
    return found._replace(reason=reason, shared=_NO_SERIES, needed=", ".join(names))


def _reason(need: Need, subject: Subject) -> str | None:
    """Return why a series is not there, as far as that is known."""
    series = SERIES[need.series]
    read = {source for name, source in subject.names if name == PRESENCE and source}
    if series.origins == ("probe",):
        return "no probe was made"
    if "gpu" in (series.feature, need.source) and (_GPUS, "") not in subject.names:
        return "no GPUs were read"
    if series.combine == "all" and {"log", "metrics"} <= set(series.origins) and not {"log", "metrics"} <= read:
        return "only one of log and /metrics was read"
    if series.feature == "slo" and "metrics" in read:
        return "no slo is configured" if subject.has_daemon else "no objective is given (--objective)"
    if "log" in (need.source, series.origins[0]) and "log" not in read:
        return "no log was read"
    if "metrics" in series.origins and "metrics" not in read and "log" not in series.origins:
        return "no /metrics was read"
    if series.feature == "slo":
        return "no /metrics was read"
    return None


def _not_there(rule: Mapping[str, Any], recorded: Mapping[str, str], subject: Subject) -> list[str]:
    """Return which series a user's rule selects, directly or through what is recorded, that are not there."""
    there = {name for name, _ in subject.names}
    pending, seen = [str(rule["expr"])], set[str]()
    while pending:
        new = selected_names(pending.pop()) - seen
        seen |= new
        pending += [recorded[name] for name in new & recorded.keys()]
    return sorted(seen - recorded.keys() - there - {ANY_NAME, "ALERTS", "ALERTS_FOR_STATE"})
