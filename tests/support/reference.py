# SPDX-License-Identifier: Apache-2.0
"""The rows of daemon/CONFIGURATION.md, each with the section of the configuration that its table is of."""

from __future__ import annotations

import re

from pathlib import Path
from typing import NamedTuple

from vllm_watch.daemon.config import model, server_config, web
from vllm_watch.daemon.config.keys import Section


REFERENCE = Path(__file__).parents[2] / "daemon" / "CONFIGURATION.md"

SECTIONS = {
    "The file": model.Config,
    "`links`": server_config.LinksConfig,
    "`prometheus`": model.PrometheusConfig,
    "`prometheus.tls`, `otlp.tls` and `servers[].metrics.tls`": server_config.TlsConfig,
    "`otlp`": model.OtlpConfig,
    "`gpu`": model.GpuConfig,
    "`kubernetes`": model.KubernetesConfig,
    "`servers[]`": server_config.ServerConfig,
    "`servers[].log`": server_config.JournalConfig,
    "`servers[].metrics`": server_config.MetricsConfig,
    "`servers[].probe`": server_config.ProbeConfig,
    "`servers[].slo`": server_config.SloConfig,
    "`servers[].capacity`": server_config.CapacityConfig,
    "The web configuration file": web.WebSections,
    "`tls_server_config`": web.WebTls,
    "`http_server_config`": web.HttpServer,
}
OF_THE_WEB = {web.WebSections, web.WebTls, web.HttpServer}


class Row(NamedTuple):
    """What the reference says of a key."""

    section: type[Section]
    key: str
    expects: str
    default: str
    example: str


def rows() -> list[Row]:
    """Return all rows."""
    found, section = [], None
    for line in REFERENCE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            section = SECTIONS.get(line.removeprefix("## "))
        row = re.fullmatch(r"\| `(\w+)` \| (\S.*?) \| (`[^`]*`|-|required) \| `([^`]+)` \| .*\. \|", line)
        if section is not None and row is not None:
            found.append(Row(section, *row.groups()))
    return found
