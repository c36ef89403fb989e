# SPDX-License-Identifier: Apache-2.0
"""The difference between two states of a dashboard, for people: panels by title, then lines of JSON."""

from __future__ import annotations

import difflib
import json

from collections import defaultdict
from collections.abc import Iterable, Iterator

from vllm_watch.cli.grafana.model import Model, content


_CONTEXT = 1
_MAX_LINE = 160
"""Characters of a JSON line that are shown: an expression or a text panel can be long."""


def panel_changes(before: Model, after: Model) -> Iterator[str]:
    """Yield which panels are added, removed and changed, and how many only moved."""
    old, new = _by_title(before), _by_title(after)
    moved = 0
    for title in [*old, *(title for title in new if title not in old)]:
        if title not in new:
            yield f'panel "{title}" removed'
        elif title not in old:
            yield f'panel "{title}" added'
        elif [_without_place(panel) for panel in old[title]] != [_without_place(panel) for panel in new[title]]:
            yield f'panel "{title}" changed'
        elif [panel.get("gridPos") for panel in old[title]] != [panel.get("gridPos") for panel in new[title]]:
            moved += 1
    if moved:
        yield f"{moved} panel{'s' if moved > 1 else ''} moved"


def json_changes(before: Model, after: Model, limit: int) -> Iterator[str]:
    """Yield a unified diff of the JSON, at most this many lines of it, and then how many more there are."""
    lines = list(
        difflib.unified_diff(_lines(before), _lines(after), "in Grafana", "vllm-watch", n=_CONTEXT, lineterm="")
    )
    yield from (line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}…" for line in lines[:limit])
    if len(lines) > limit > 0:
        yield f"… and {len(lines) - limit} more lines: --diff-lines {len(lines)} shows all"


def _lines(model: Model) -> list[str]:
    return json.dumps(content(model), indent=1, sort_keys=True, ensure_ascii=False).splitlines()


def _by_title(model: Model) -> dict[str, list[Model]]:
    """Return all panels by title, those inside collapsed rows too."""
    found: dict[str, list[Model]] = defaultdict(list)
    for panel in _panels(model.get("panels") or []):
        found[str(panel.get("title") or f"{panel.get('type', 'panel')} without a title")].append(panel)
    return dict(found)


def _panels(panels: Iterable[Model]) -> Iterator[Model]:
    for panel in panels:
        yield panel
        yield from _panels(panel.get("panels") or [])


def _without_place(panel: Model) -> dict[str, object]:
    """Return a panel without its place and number; the panels of a row are compared one by one."""
    return {key: value for key, value in panel.items() if key not in {"gridPos", "id", "panels"}}
