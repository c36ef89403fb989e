# SPDX-License-Identifier: Apache-2.0
"""Tables with a row for each engine of each chosen server."""

from __future__ import annotations

from boards.kit import promql
from boards.kit.links import to_board
from boards.kit.panels import Key
from boards.kit.texts import Texts


_LABELS = ("instance", "server", "engine")


def keys(texts: Texts, uid: str) -> list[Key]:
    """Return the columns that name an engine; a click on its server opens the dashboard of this uid for it.

    It is that server of that daemon: another daemon may have one of the same name.
    """
    chosen = {"server": "${__value.raw}", "daemon": "${__data.fields.instance}"}
    opened = to_board(texts.name("open_server"), uid, **chosen)
    return [
        Key("server", texts.name("server"), [opened], width=150),
        Key("instance", texts.name("daemon"), width=115),
        Key("engine", texts.name("engine"), width=65),
    ]


def cell(expr: str, *more: str) -> str:
    """Return what a query gives as one value for each row, with some more labels where it brings them."""
    return promql.only(expr, *_LABELS, *more)
