# SPDX-License-Identifier: Apache-2.0
"""How a flag with a value is written on the command line of a server."""

from __future__ import annotations

import json

from collections.abc import Mapping


DRAFT_TOKENS = "speculative-config.num_speculative_tokens"
"""The flag that says how many tokens are drafted."""

OFF = "off"
"""The value of a flag that is to be left out."""

_SWITCHES = frozenset({"enforce-eager", "enable-prefix-caching"})
_FIELDS = ("method", "model")


def argument(flag: str, value: str, flags: Mapping[str, str]) -> str:
    """
    Return what to start the server with: ``with --max-num-seqs 8``, ``without --enforce-eager``.

    Args:
        flag: The flag, without dashes.
        value: The value to try.
        flags: What the server has now.
    """
    outer = flag.partition(".")[0]
    if value == OFF or (flag in _SWITCHES and value == "False"):
        return f"without --{outer}"
    if flag in _SWITCHES:
        return f"with --{flag}"
    if flag == DRAFT_TOKENS:
        known = {name: flags[f"{outer}.{name}"] for name in _FIELDS if f"{outer}.{name}" in flags}
        return f"with --{outer} '{json.dumps({**known, 'num_speculative_tokens': int(value)})}'"
    return f"with --{flag} {value}"
