# SPDX-License-Identifier: Apache-2.0
"""
Hidden variables for legends: which server, engine and daemon a series is of is said only where there are several.

The value of such a variable is itself a part of a legend, such as ``{{server}}``, and nothing where there is one.
Grafana puts it into the legend before it replaces labels.
"""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import dashboard

from boards.kit import promql


OF: Final = "of"
"""Before what a series is: the server, where several are shown."""

AT: Final = "at"
"""Behind what a series is: the address of its daemon, where several are shown."""


ENGINE: Final = "eng"
"""Behind what a series is: its engine, where a server that is shown has several."""


class _Hidden(builders.QueryVariable):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        # A link would carry the value along, and it would hold for other servers.
        self._internal.skip_url_sync = True


def variables(engine: str, datasource: dashboard.DataSourceRef) -> list[builders.QueryVariable]:
    """
    Return the variables, which stand behind those of servers, daemons and engines.

    engine: what an engine is called.
    """
    servers, engines = (
        f"last_over_time({series}[{promql.RANGE}])"
        for series in (promql.of_server("source_up"), promql.of_engine("engine_state"))
    )
    of_servers = "count by (instance, server)"
    return [
        _where_several(OF, f"count(count by (server) ({servers}))", "{{server}} ", datasource),
        _where_several(
            ENGINE,
            f"max({of_servers} (count by (instance, server, engine) ({engines})))",
            f" {engine} {{{{engine}}}}",
            datasource,
        ),
        _where_several(AT, f"count(count by (instance) ({servers}))", " {{instance}}", datasource),
    ]


def _where_several(name: str, number: str, legend: str, datasource: dashboard.DataSourceRef) -> builders.QueryVariable:
    several = f"{number} > 1"
    query = f'query_result(label_replace({several}, "{name}", "{legend}", "", ""))'
    return (
        _Hidden(name)
        .query({"query": query, "refId": name})
        .regex(f'/{name}="([^"]+)"/')
        .datasource(datasource)
        .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .hide(dashboard.VariableHide.HIDE_VARIABLE)
    )
