# SPDX-License-Identifier: Apache-2.0
"""What happened to the chosen servers, and load tests, marked in every panel with a time axis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import dashboard

from boards.kit import palette, promql
from boards.kit.links import TAG
from boards.kit.panels import DATASOURCE
from boards.kit.texts import Texts


CRASHES = "engine_dead|worker_died|out_of_memory|nccl_error"

GRAFANA = dashboard.DataSourceRef(type_val="grafana", uid="-- Grafana --")
"""Grafana's own database of annotations."""

_MOST_REGIONS = 200

_NOT_SET = "(-)"
"""Before or after a change; in any language, as queries are."""

_SERVER = 'instance=~"$daemon",server=~"$server"'


class _PrometheusAnnotation(dashboard.AnnotationQuery):
    """An annotation with the settings of Grafana's Prometheus data source, which the SDK's model does not know."""

    settings: Mapping[str, object]

    def to_json(self) -> dict[str, object]:
        """Return the annotation as Grafana writes it."""
        return {**super().to_json(), **self.settings}


class _Built(builders.AnnotationQuery):
    def __init__(self, annotation: dashboard.AnnotationQuery) -> None:
        super().__init__()
        self._internal = annotation


def marks(texts: Texts) -> Iterator[builders.AnnotationQuery]:
    """Yield starts of the server, what they changed, errors of its GPUs, crashes that its log reported, and alerts."""
    # A start is marked when it was, and not when it was first seen.
    yield _annotation(
        texts.name("starts"),
        palette.SKY,
        f"{promql.of_server('server_start_timestamp_seconds')} * 1000",
        useValueForTime=True,
        titleFormat=texts.name("start_of"),
        step="15s",
    )
    yield _changes(texts)
    yield _gpu_errors(texts)
    failures = promql.of_server("log_events_total", f'event=~"{CRASHES}"')
    yield _annotation(
        texts.name("crashes"),
        palette.PURPLE,
        promql.happened(failures),
        titleFormat="{{server}}: {{event}}",
        step="15s",
    )
    # Only where one begins to fire: the stretches of several alerts would lie over each other, and over the lines.
    firing = f'ALERTS{{alertname!="Watchdog",alertstate="firing",{_SERVER}}}'
    yield _annotation(
        texts.name("alerts"),
        palette.VERMILLION,
        f"{firing} unless {firing} offset $__interval",
        titleFormat="{{alertname}}",
        textFormat="{{server}} {{engine}}",
        tagKeys="severity",
        step="15s",
    )


def _changes(texts: Texts) -> builders.AnnotationQuery:
    """Return what starts have changed: a flag, the model or the version, with its value before and after."""
    changed = promql.of_server("server_config_change_timestamp_seconds")
    for end in ("from", "to"):
        changed = f'label_replace({changed}, "{end}", "{_NOT_SET}", "{end}", "")'
    return _annotation(
        texts.name("changes"),
        palette.BLUE,
        f"{changed} * 1000",
        useValueForTime=True,
        titleFormat="{{server}}: {{flag}} {{from}} → {{to}}",
        step="15s",
    )


def _gpu_errors(texts: Texts) -> builders.AnnotationQuery:
    """Return the last error of each code that the kernel reported of a server's GPUs."""
    return _annotation(
        texts.name("xids"),
        palette.ORANGE,
        f"1000 * vllm_watch_gpu_xid_last_timestamp_seconds and on (gpu) {promql.of_server('server_gpu_info')}",
        useValueForTime=True,
        titleFormat="Xid {{xid}} ({{class}})",
        textFormat="{{gpu}}",
        step="15s",
    )


def load_tests(texts: Texts) -> builders.AnnotationQuery:
    """Return the regions that ``vllm-watch grafana mark`` writes, whichever server they are of."""
    target = dashboard.AnnotationTarget(limit=_MOST_REGIONS, match_any=False, tags=[TAG], type_val="tags")
    return _Built(
        dashboard.AnnotationQuery(
            name=texts.name("load_tests"), datasource=GRAFANA, icon_color=palette.GREEN, target=target
        )
    )


def _annotation(name: str, color: str, expr: str, **settings: object) -> builders.AnnotationQuery:
    annotation = _PrometheusAnnotation(name=name, datasource=DATASOURCE, icon_color=color, expr=expr)
    annotation.settings = settings
    return _Built(annotation)
