# SPDX-License-Identifier: Apache-2.0
"""``--explain`` of ``compare`` and ``advise``: the document on the method, which comes with the package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any, Literal, TypeVar

import click

from vllm_watch.daemon.support.standard_streams import write_output


_Command = TypeVar("_Command", bound=Callable[..., Any])

_DOCUMENTS: Mapping[str, str] = {"comparison": "COMPARING.md", "advice": "ADVISING.md"}
"""By the package that they are about. In the source tree they are links to those of ``daemon/``."""


def explain_option(package: Literal["comparison", "advice"], what: str) -> Callable[[_Command], _Command]:
    """Return a decorator that gives a command ``--explain``; `what` completes the sentence of its help."""

    def explain(context: click.Context, _parameter: click.Parameter, is_asked: bool) -> None:
        if is_asked and not context.resilient_parsing:
            write_output((files(f"vllm_watch.analysis.{package}") / _DOCUMENTS[package]).read_text(encoding="utf-8"))
            context.exit()

    return click.option(
        "--explain",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=explain,
        help=f"Print {what} and exit.",
    )
