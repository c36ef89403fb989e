# SPDX-License-Identifier: Apache-2.0
"""Facts on the command line of a vLLM server."""

from __future__ import annotations

from typing import NamedTuple

from vllm_watch_parsers.flags import Flags


class CommandFacts(NamedTuple):
    """
    Facts from a server's command line, for what its log does not have.

    A fact from the log takes precedence: the log shows what vLLM made of its arguments. `flags` are the options of the
    list in `flags`, sizes among them; `None` where there is no command line. `model` is what was given as the model.
    """

    model_name: str = ""
    has_several_api_servers: bool = False
    log_stats_disabled: bool = False
    flags: Flags | None = None
    model: str | None = None
