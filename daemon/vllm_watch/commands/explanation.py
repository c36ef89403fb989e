# SPDX-License-Identifier: Apache-2.0
"""``compare --explain``: the document on the method, which comes with the package."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

import click

from vllm_watch.support.standard_streams import write_output


_DOCUMENTS: Mapping[str, str] = {"en": "COMPARING.md", "zh": "COMPARING.zh-CN.md"}
"""By language. In the source tree they are links to those of ``daemon/``."""


def _explain(context: click.Context, _parameter: click.Parameter, language: str | None) -> None:
    if language is not None and not context.resilient_parsing:
        write_output((files("vllm_watch.comparison") / _DOCUMENTS[language]).read_text(encoding="utf-8"))
        context.exit()


explain_option = click.option(
    "--explain",
    is_flag=False,
    flag_value="en",
    type=click.Choice(tuple(_DOCUMENTS)),
    is_eager=True,
    expose_value=False,
    callback=_explain,
    help="Print how sides are given, what is compared and by which method, in English or Chinese, and exit.",
)
