# SPDX-License-Identifier: Apache-2.0
"""Which alerts can fire with the sources that are configured, and why the others cannot."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple, cast

from vllm_watch.daemon.catalog.alert_needs import Need, alert_needs
from vllm_watch.daemon.catalog.codes import FLAGS_OF_FACTS
from vllm_watch.daemon.catalog.reasons import SourceName
from vllm_watch.daemon.catalog.series import DAEMON, GPUS, SERIES, Series
from vllm_watch.daemon.config.server_config import ServerConfig
from vllm_watch.daemon.exposition.samples import server_samples
from vllm_watch.daemon.state.snapshot import ServerSnapshot


_UNUSED = {
    "speculative decoding": "no speculative decoding was found",
    "kv connector": "no KV connector shows it",
    "lora": "no LoRA adapter was used",
    "nan": "vLLM does not run with VLLM_COMPUTE_NANS_IN_LOGITS=1",
}
"""What a server does not do, by the feature of its series."""

_NO_LOG = "no log is configured"
_NO_METRICS = "no metrics are configured"
_NO_GPUS = "no GPUs are read"
_KERNEL_LOG = ("kernel log",)
_UNREADABLE: dict[SourceName, str] = {"log": "the log cannot be read", "metrics": "/metrics cannot be read"}
_FOREIGN = "the log is not vLLM's"


class Silent(NamedTuple):
    """An alert that cannot fire, or not whenever it should, and why."""

    alert: str
    summary: str
    reason: str


def silent_alerts(
    config: ServerConfig,
    now: ServerSnapshot,
    later: ServerSnapshot,
    more: Collection[str] = (),
    *,
    has_kernel_log: bool,
) -> tuple[list[Silent], list[Silent]]:
    """
    Return the alerts that cannot fire for a server, and those that would fire in more cases if a flag were known.

    Args:
        config: What is configured for it.
        now: What it shows.
        later: What it shows whatever its age.
        more: The series that it will show besides once there is traffic.
        has_kernel_log: Whether the kernel's log is read.
    """
    shown = {*_shown(config, later, has_kernel_log=has_kernel_log), *map(Need, more)}
    silent: list[Silent] = []
    limited: list[Silent] = []
    for alert, needs in alert_needs().items():
        missing, unknown = needs.missing(shown), [f"--{flag} is not known" for flag in needs.unknown_flags(shown)]
        reasons = set(unknown) if unknown else {reason for need in missing for reason in _reasons(need, config, now)}
        if needs.several_engines and len(later.engines) <= 1:
            reasons.add("there is one engine")
        if reasons:
            found = Silent(alert, needs.summary, " and ".join(sorted(reasons)))
            (limited if unknown and not missing else silent).append(found)
    return silent, limited


def _shown(config: ServerConfig, later: ServerSnapshot, *, has_kernel_log: bool) -> Iterator[Need]:
    for sample in server_samples(later):
        yield Need(sample.name)
        labels = SERIES[sample.name].labels
        if "source" in labels:
            yield Need(sample.name, cast("SourceName", sample.labels[labels.index("source")]))
    yield from (Need(series.name) for series in DAEMON.series)
    yield Need("engine_stall_info")  # It is there while the engine is stalled.
    yield Need("kv_cache_capacity_former_tokens")  # It is there from the second start on.
    if later.gpus and has_kernel_log:
        yield from (Need(series.name) for series in GPUS.series if series.origins == _KERNEL_LOG)
    if config.has_log:
        yield Need("engine_state", "log")
    for series in SERIES.values():
        if (_is_compared(series) and config.has_log and config.metrics is not None) or (
            series.origins == ("probe",) and config.probe_url is not None
        ):
            yield Need(series.name)


def _is_compared(series: Series) -> bool:
    """Whether a series compares log and metrics: it is there only after both have reported for minutes."""
    return series.combine == "all" and set(series.origins) == {"log", "metrics"}


def _reasons(need: Need, config: ServerConfig, now: ServerSnapshot) -> list[str]:
    series = SERIES[need.series]
    if series.feature == "gpu" or need.source == "gpu":
        return [_reason_of_gpu(series, now)]
    if series.origins == ("probe",):
        return ["no probe is configured"]
    if series.name in FLAGS_OF_FACTS:  # The log's start has it, or the command line of a process on this machine.
        return [f"--{FLAGS_OF_FACTS[series.name]} is not known"]
    if _is_compared(series):
        return [*([] if config.has_log else [_NO_LOG]), *([] if config.metrics else [_NO_METRICS])]
    without_log = _without("log", now, _NO_LOG, is_configured=config.has_log)
    without_metrics = _without("metrics", now, _NO_METRICS, is_configured=config.metrics is not None)
    if series.feature == "slo" and config.slo is None:
        return ["no slo is configured", *without_metrics]
    if "log" in (need.source, series.origins[0]):
        return without_log or [f"the log has no {series.name}"]
    unused = _UNUSED.get(series.feature or "")
    if unused is not None and (without_metrics if series.origins == ("metrics",) else without_log and without_metrics):
        return without_metrics
    if unused is not None:
        return [unused]
    # Few releases log what counters are made of: for those /metrics is what is missing.
    if series.type == "gauge" and "log" in series.origins and config.metrics is None:
        return without_log or [f"the log has no {series.name}"]
    return without_metrics or [f"/metrics has no {series.name}"]


def _reason_of_gpu(series: Series, now: ServerSnapshot) -> str:
    if series.origins == _KERNEL_LOG and now.gpus:
        return "the kernel's log is not read"
    return f"its GPUs have no {series.name}" if any(each.reading is not None for each in now.gpus) else _NO_GPUS


def _without(source: SourceName, now: ServerSnapshot, absence: str, *, is_configured: bool) -> list[str]:
    """Return why a source has no values at all, if that is so."""
    if not is_configured:
        return [absence]
    known = [each for each in now.sources if each.source == source]
    if any(each.is_up for each in known):
        return []
    return [_FOREIGN if any(each.reason == "not_vllm" for each in known) else _UNREADABLE[source]]
