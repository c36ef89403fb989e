# SPDX-License-Identifier: Apache-2.0
"""The flags that servers run with, as rows of tables: one for each server and flag whose value is known."""

from __future__ import annotations

from typing import Final

from boards.kit import promql
from boards.kit.panels import Column, Key, Panel, grid
from boards.kit.texts import Texts
from vllm_watch.daemon.catalog.codes import CONFIG_LABELS, FLAGS_OF_FACTS


_FLAG: Final = "_flag"
_VALUE: Final = "_value"

_OF_SERVER: Final = "instance, server, model_name"


def table(t: Texts, panel: str, expr: str) -> Panel:
    """Return a table of `known` flags or of `differing` ones, of each flag the rarest value first."""
    flag, alike, server = t.name("flag"), t.name("alike"), t.name("server")
    return grid(
        t.panel(panel),
        [
            Key(_FLAG, flag, width=275),
            Key(_VALUE, t.name("value")),
            Key("model_name", t.name("model")),
            Key("server", server, width=110),
            Key("instance", t.name("daemon"), width=115),
        ],
        [Column(expr, alike, width=120)],
        sort_by=[(flag, False), (alike, False), (server, False)],
    )


def known() -> str:
    """
    Return each flag of each server whose value is known, with the flag and the value as labels.

    It is how many of the servers of its model have the same value.
    """
    return f"{_known()} * on (model_name, {_FLAG}, {_VALUE}) group_left () {_alike()}"


def _alike() -> str:
    return f"count by (model_name, {_FLAG}, {_VALUE}) ({_known()})"


def _known() -> str:
    chosen = [
        _row(f"max by ({_OF_SERVER}, {label}) ({_info(label)})", label, flags[0])
        for label, flags in CONFIG_LABELS.items()
    ]
    numbers = [
        _named(f'count_values by ({_OF_SERVER}) ("{_VALUE}", {_of_engines(series)})', flag)
        for series, flag in FLAGS_OF_FACTS.items()
    ]
    version = promql.of_model("server_info", 'version!=""')
    chosen.append(_row(f"max by ({_OF_SERVER}, version) ({version})", "version", "version"))
    return f"max by ({_OF_SERVER}, {_FLAG}, {_VALUE}) ({' or '.join([*chosen, *numbers])})"


def differing() -> str:
    """Return the rows of flags that servers of one model run with different values of."""
    return f"{known()} and on (model_name, {_FLAG}) count by (model_name, {_FLAG}) ({_alike()}) > 1"


def _info(label: str) -> str:
    return promql.of_model("server_config_info", f'{label}!=""')


def _row(expr: str, label: str, flag: str) -> str:
    return _named(f'label_replace({expr}, "{_VALUE}", "$1", "{label}", "(.*)")', flag)


def _named(expr: str, flag: str) -> str:
    return f'label_replace({expr}, "{_FLAG}", "{flag}", "", "")'


def _of_engines(series: str) -> str:
    return f"max by ({_OF_SERVER}) ({promql.of_engine(series)} > 0)"
