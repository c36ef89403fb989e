# SPDX-License-Identifier: Apache-2.0
"""
Which alerts can fire with the sources at hand, and why the others cannot.

`alert_needs.json` is made from the rules (``make alerts``): the sets of series, each of which lets an alert fire.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from importlib import resources
from typing import NamedTuple

import msgspec

from vllm_watch.catalog.series import DAEMON, SERIES
from vllm_watch.config.model import ServerConfig
from vllm_watch.exposition.samples import server_samples
from vllm_watch.state.snapshot import ServerSnapshot, SourceName


SEVERAL_ENGINES = "several engines"

_BY_SOURCE = ("source_up", "source_info")
_OBJECTIVES = "slo_"
_PROBE = "probe_"
_SPECULATION = "spec_decode_"
_DISAGREEMENT = "source_disagreement"
_NO_LOG = "no log is configured"
_NO_METRICS = "no metrics are configured"
_UNREADABLE: dict[SourceName, str] = {"log": "the log cannot be read", "metrics": "/metrics cannot be read"}
_NOT_SAID = {"max_running_requests": "the log does not show --max-num-seqs"}
_EITHER = "scrape, else the log"


class AlertNeeds(msgspec.Struct, frozen=True):
    """One alert: `ways` are sets of series, each set is enough; ``source_up of log`` must be of that source."""

    severity: str
    summary: str
    ways: tuple[tuple[str, ...], ...]


class Silent(NamedTuple):
    """An alert that cannot fire, and why."""

    alert: str
    summary: str
    reason: str


@cache
def alert_needs() -> dict[str, AlertNeeds]:
    """Return what each alert of the package needs."""
    text = (resources.files("vllm_watch.commands") / "alert_needs.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, AlertNeeds])


def silent_alerts(config: ServerConfig, now: ServerSnapshot, later: ServerSnapshot) -> list[Silent]:
    """
    Return the alerts that cannot fire for a server.

    Args:
        config: What is configured for it.
        now: What it shows.
        later: What it will show once there is traffic.
    """
    shown = set(_shown(config, later))
    missing = {alert: _missing(needs, shown) for alert, needs in alert_needs().items()}
    return [
        Silent(alert, alert_needs()[alert].summary, _reason(series, config, now))
        for alert, series in missing.items()
        if series
    ]


def _shown(config: ServerConfig, later: ServerSnapshot) -> Iterator[str]:
    for sample in server_samples(later):
        yield sample.name
        if sample.name in _BY_SOURCE:
            yield f"{sample.name} of {sample.labels[1]}"
    yield from (series.name for series in DAEMON.series)
    if config.has_log:
        yield "engine_state of log"
        if config.metrics is not None:
            yield _DISAGREEMENT  # Shown once both have spoken for minutes.
    if config.probe_url is not None:
        yield from ("probe_success", "probe_time_to_first_token_seconds")
    if len(later.engines) > 1:
        yield SEVERAL_ENGINES


def _missing(needs: AlertNeeds, shown: set[str]) -> list[str]:
    """Return what an alert lacks, by the way on which it lacks least."""
    return min(([name for name in way if name not in shown] for way in needs.ways), key=len)


def _reason(missing: Iterable[str], config: ServerConfig, now: ServerSnapshot) -> str:
    return " and ".join(sorted({reason for name in missing for reason in _reasons(name, config, now)}))


def _reasons(name: str, config: ServerConfig, now: ServerSnapshot) -> list[str]:
    """Return why a server does not show a series."""
    base, _, source = name.partition(" of ")
    if name == SEVERAL_ENGINES:
        return ["there is one engine"]
    if base.startswith(_PROBE):
        return ["no probe is configured"]
    if base == _DISAGREEMENT:
        return [*([] if config.has_log else [_NO_LOG]), *([] if config.metrics else [_NO_METRICS])]
    without_log, without_page = _without_log(config, now), _without_page(config, now)
    if base.startswith(_OBJECTIVES) and config.slo is None:
        return ["no slo is configured", *without_page]
    origin = SERIES[base].origin
    if source == "log" or origin.startswith("log"):
        return without_log or [_NOT_SAID.get(base, f"the log has no {base}")]
    if base.startswith(_SPECULATION) and not (without_log and without_page):
        return ["no speculative decoding was found"]
    if origin.startswith(_EITHER) and config.metrics is None:
        return without_log or [f"the log has no {base}"]
    return without_page or [f"/metrics has no {base}"]


def _without_log(config: ServerConfig, now: ServerSnapshot) -> list[str]:
    return _without("log", now, _NO_LOG, is_configured=config.has_log)


def _without_page(config: ServerConfig, now: ServerSnapshot) -> list[str]:
    return _without("metrics", now, _NO_METRICS, is_configured=config.metrics is not None)


def _without(source: SourceName, now: ServerSnapshot, absence: str, *, is_configured: bool) -> list[str]:
    """Return why a source says nothing at all, if that is so."""
    if not is_configured:
        return [absence]
    return [] if any(each.is_up for each in now.sources if each.source == source) else [_UNREADABLE[source]]
