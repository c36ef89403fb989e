# SPDX-License-Identifier: Apache-2.0
"""Dashboards as values: Grafana's JSON model, what of it is content, and how a push is recognised later."""

from __future__ import annotations

import hashlib
import json
import re

from collections.abc import Mapping
from typing import Any, NamedTuple

from vllm_watch import __version__


Model = Mapping[str, Any]
"""A dashboard in Grafana's JSON (schema v1)."""

FOLDER_UID = "vllm-watch"

DATA_SOURCE_VARIABLE = "datasource"

# Grafana sets these; the uid is the name under which all is compared.
_NO_CONTENT = frozenset({"id", "uid", "version", "iteration"})

_DIGEST_CHARACTERS = 16
_PUSH = re.compile(rf"vllm-watch \S+ pushed ([0-9a-f]{{{_DIGEST_CHARACTERS}}})\Z")


class Dashboard(NamedTuple):
    """A dashboard as it should be."""

    uid: str
    title: str
    model: Model


class DataSource(NamedTuple):
    """A data source of type Prometheus."""

    uid: str
    name: str
    is_default: bool = False


def content(model: Model) -> dict[str, Any]:
    """Return what somebody made of a dashboard, without what Grafana adds to every one."""
    return {key: value for key, value in model.items() if key not in _NO_CONTENT}


def digest(model: Model) -> str:
    """Return a short digest of the content, the same for any order of keys."""
    text = json.dumps(content(model), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARACTERS]


def push_message(model: Model) -> str:
    """Return the message that a push leaves in the dashboard's history."""
    return f"vllm-watch {__version__} pushed {digest(model)}"


def pushed_digest(message: str) -> str | None:
    """Return the digest that a message of the history names, or `None` if it is not that of a push."""
    found = _PUSH.match(message)
    return found[1] if found else None


def with_data_source(dashboard: Dashboard, source: DataSource) -> Dashboard:
    """Return the dashboard opening with this data source."""
    templating = dashboard.model.get("templating", {})
    current = {"selected": True, "text": source.name, "value": source.uid}
    variables = [
        {**variable, "current": current} if _is_data_source_variable(variable) else variable
        for variable in templating.get("list", [])
    ]
    return dashboard._replace(model={**dashboard.model, "templating": {**templating, "list": variables}})


def _is_data_source_variable(variable: Model) -> bool:
    return variable.get("name") == DATA_SOURCE_VARIABLE and variable.get("type") == "datasource"
