# SPDX-License-Identifier: Apache-2.0
"""In which colour a dashboard shows a number, by the mappings and thresholds of a figure or a table's cell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


PLAIN_CELLS = frozenset({"auto", "json-view"})
"""Kinds of a table's cells that have no colour of their own."""

Panel = Mapping[str, Any]


def color_of(panel: Panel, target: Mapping[str, Any], value: float) -> str | None:
    """Return the colour of a value that a target gives; nothing if it has that of text, or of no judgement."""
    if panel["type"] not in {"stat", "table"}:
        return None
    field = _field(panel, target)
    if panel["type"] == "table" and field.get("custom.cellOptions", {"type": "auto"})["type"] in PLAIN_CELLS:
        return None
    mapped = _mapped(field.get("mappings") or [], value)
    return mapped or _step(field.get("thresholds", {}).get("steps", []), value)


def _field(panel: Panel, target: Mapping[str, Any]) -> dict[str, Any]:
    """Return how a target's values are shown: the panel's defaults, and what is set for this target."""
    field = dict(panel.get("fieldConfig", {}).get("defaults", {}))
    for override in panel.get("fieldConfig", {}).get("overrides", []):
        if _is_of(override["matcher"], target):
            field |= {each["id"]: each.get("value") for each in override["properties"]}
    return field


def _is_of(matcher: Mapping[str, Any], target: Mapping[str, Any]) -> bool:
    names = {"byFrameRefID": target["refId"], "byName": target.get("legendFormat")}
    return names.get(matcher["id"]) == matcher["options"]


def _mapped(mappings: Sequence[Mapping[str, Any]], value: float) -> str | None:
    for mapping in mappings:
        result = mapping["options"].get(f"{value:g}") if mapping["type"] == "value" else None
        if result is not None:
            return result.get("color")
    return None


def _step(steps: Sequence[Mapping[str, Any]], value: float) -> str | None:
    reached = [step["color"] for step in steps if step.get("value") is None or value >= step["value"]]
    return reached[-1] if reached else None


def judging(panels: Iterator[Panel]) -> Iterator[Panel]:
    """Yield the panels that may tell by a colour whether all is well."""
    yield from (panel for panel in panels if panel["type"] in {"stat", "table"})
