# SPDX-License-Identifier: Apache-2.0
"""
What people read on the dashboards, in ``texts/LANGUAGE/BOARD.yml``: no text of a panel is in the code.

``common.yml`` has the texts of several boards. The English texts of reasons and states are those of the daemon's
catalogue. A text may name a threshold of the alerts, and how it is written: ``%{kv_full_ratio:.0%}``; or all states:
``%{states}`` with their meanings, ``%{worst_to_best}`` in that order. A text that is not translated yet is shown in
English; ``make release-check`` finds those.
"""

from __future__ import annotations

import re

from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import NamedTuple

import yaml

from boards.kit.thresholds import thresholds
from vllm_watch.daemon.catalog.reasons import BY_SOURCE
from vllm_watch.daemon.catalog.states import BEST_TO_WORST, STATES, EngineState


FOLDER = Path(__file__).parents[2] / "texts"
ENGLISH = "en"
LANGUAGES = (ENGLISH, "zh")

_PLACE = re.compile(r"%\{(\w+)(?::([^}]*))?\}")


_FROM_CATALOGUE: Mapping[str, Mapping[str, str]] = {
    "common": {
        key: text
        for code, state in STATES.items()
        for key, text in ((f"states.{code}.name", code), (f"states.{code}.text", state.short))
    },
    "sources": {
        f"reasons.{source}.{code}": reason.short
        for source, reasons in BY_SOURCE.items()
        for code, reason in reasons.items()
    },
}


class PanelText(NamedTuple):
    """A panel's title, its description, and what it says when it has no data."""

    title: str
    description: str
    empty: str


class Texts:
    """
    The texts of one board in one language.

    Raises (all methods):
        KeyError: There is no such text; the message names the file and the key.
    """

    def __init__(self, language: str, board: str) -> None:
        self.board = board
        self._texts = read_texts(language, board)
        self._shared = read_texts(language, "common")

    def get(self, key: str) -> str:
        """Return the board's own text of a key such as ``title`` or ``rows.users``, else the common one."""
        for texts in (self._texts, self._shared):
            if key in texts:
                return _PLACE.sub(self._named, texts[key])
        raise KeyError(f"{self.board}.yml and common.yml: no text {key}")

    def name(self, key: str) -> str:
        """Return a word or two: of a legend, a column, a state."""
        return self.get(f"names.{key}")

    def of_server(self, key: str) -> str:
        """Return a legend: the server, and a word or two."""
        return f"{{{{server}}}} {self.name(key)}"

    def state(self, state: EngineState) -> str:
        """Return what a state is called."""
        return self.get(f"states.{state}.name")

    def row(self, key: str) -> str:
        """Return a row's title."""
        return self.get(f"rows.{key}")

    def panel(self, key: str) -> PanelText:
        """Return the texts of a panel; without an ``empty`` of its own it says the common one."""
        own_empty = f"panels.{key}.empty"
        has_own = own_empty in self._texts or own_empty in self._shared
        return PanelText(
            self.get(f"panels.{key}.title"),
            self.get(f"panels.{key}.description"),
            self.get(own_empty if has_own else "empty"),
        )

    def _named(self, place: re.Match[str]) -> str:
        if place[1] == "states":
            entries = [
                self.get("state_entry").format(self.state(state), self.get(f"states.{state}.text"))
                for state in BEST_TO_WORST
            ]
            return reduce(self.get("sentences").format, entries)
        if place[1] == "worst_to_best":
            return reduce(self.get("enumeration").format, [self.state(state) for state in reversed(BEST_TO_WORST)])
        return format(thresholds()[place[1]], place[2] or "")


def read_texts(language: str, name: str) -> dict[str, str]:
    """Return the texts of ``LANGUAGE/NAME.yml`` by their keys, joined by dots, and the English ones of other keys."""
    return {**english_texts(name), **read_file(FOLDER / language / f"{name}.yml")}


def english_texts(name: str) -> dict[str, str]:
    """Return the English texts of a board, or the common ones, by their keys, joined by dots."""
    return {**read_file(FOLDER / ENGLISH / f"{name}.yml"), **_FROM_CATALOGUE.get(name, {})}


def read_file(path: Path) -> dict[str, str]:
    """Return a file's own texts by their keys, joined by dots; a file that is not there has none."""
    texts: dict[str, str] = {}

    def flatten(node: object, key: str) -> None:
        if isinstance(node, dict):
            for name, below in node.items():
                flatten(below, f"{key}.{name}" if key else str(name))
        else:
            texts[key] = " ".join(str(node).split())

    flatten(yaml.safe_load(path.read_text(encoding="utf-8")) or {} if path.exists() else {}, "")
    return texts
