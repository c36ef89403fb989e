# SPDX-License-Identifier: Apache-2.0
"""
Hidden variables for legends: which server and which daemon a series is of is said only where there are several.

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


class _Hidden(builders.QueryVariable):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        # A link would carry the value along, and it would hold for other servers.
        self._internal.skip_url_sync = True


def variables(datasource: dashboard.DataSourceRef) -> list[builders.QueryVariable]:
    """Return the variables, which stand behind those of servers and daemons."""
    return [
        _where_several(OF, "server", "{{server}} ", datasource),
        _where_several(AT, "instance", " {{instance}}", datasource),
    ]


def _where_several(name: str, label: str, legend: str, datasource: dashboard.DataSourceRef) -> builders.QueryVariable:
    shown = f"last_over_time({promql.of_server('source_up')}[{promql.RANGE}])"
    several = f"count(count by ({label}) ({shown})) > 1"
    query = f'query_result(label_replace({several}, "{name}", "{legend}", "", ""))'
    return (
        _Hidden(name)
        .query({"query": query, "refId": name})
        .regex(f'/{name}="([^"]+)"/')
        .datasource(datasource)
        .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .hide(dashboard.VariableHide.HIDE_VARIABLE)
    )
