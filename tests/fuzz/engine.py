# SPDX-License-Identifier: Apache-2.0
"""
One target under atheris, in a process of its own: libFuzzer ends the process when it is done.

Arguments: the target, what libFuzzer starts to start this again, then libFuzzer's own.
"""

from __future__ import annotations

import sys

from importlib import import_module
from random import Random

import atheris

from tests.fuzz.mutation import structured


PACKAGES = ["vllm_watch", "vllm_watch_parsers"]
_BYTEWISE = 3
"""One change in so many is libFuzzer's own, which knows no lines."""


def main(arguments: list[str]) -> None:
    """Fuzz, merge or replay, as libFuzzer's arguments say."""
    # Only the product's code: edges of the standard library would lead the search elsewhere.
    with atheris.instrument_imports(include=PACKAGES):
        target = import_module(f"tests.fuzz.targets.{arguments[1]}")
    change = structured(target.seeds(), target.TOKENS)

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        random = Random(seed)
        if not data or random.randrange(_BYTEWISE) == 0:
            return atheris.Mutate(data, max_size)
        return change(data, random)[:max_size]

    atheris.Setup(arguments[2:], target.check, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)
