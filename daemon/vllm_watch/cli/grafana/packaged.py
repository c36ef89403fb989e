# SPDX-License-Identifier: Apache-2.0
"""The dashboards that come with the package."""

from __future__ import annotations

import json

from importlib.resources import files
from typing import Literal

from vllm_watch.cli.grafana.model import Dashboard
from vllm_watch.daemon.support.errors import GrafanaError


Language = Literal["en", "zh"]

LANGUAGES: tuple[Language, ...] = ("en", "zh")


def packaged(language: Language) -> list[Dashboard]:
    """Return the package's dashboards with texts in a language, in the order of their uids."""
    folder = files("vllm_watch.cli.grafana") / "dashboards" / language
    # The folder is a symbolic link in the source tree; a checkout without links has a file in its place.
    if not folder.is_dir():
        raise GrafanaError("this installation has no dashboards: reinstall the package vllm-watch")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".json"))
    models = [json.loads((folder / name).read_text(encoding="utf-8")) for name in names]
    return [Dashboard(model["uid"], model["title"], model) for model in models]
