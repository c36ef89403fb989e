# SPDX-License-Identifier: Apache-2.0
"""
Fuzzing with atheris: ``make fuzz ARGS='exposition --seconds 600'``, or ``python -m tests.fuzz exposition``.

A finding is written to ``tests/fuzz/findings``. What is mended goes into the corpus, under a name that says what it is
about; every test run replays the corpus. ``--keep`` adds what a run found to it: few inputs that cover all that was
covered.
"""

from __future__ import annotations

import argparse
import sys

from collections.abc import Sequence

from tests.fuzz.runs import FINDINGS, fuzz
from tests.fuzz.targets import TARGETS


def main(arguments: Sequence[str]) -> int:
    """Run one target, or all one after the other; return 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("target", choices=["all", *TARGETS])
    parser.add_argument("--seconds", type=int, default=60, help="how long to look at each target")
    parser.add_argument("--seed", type=int, default=0, help="repeats a run; 0 is chance")
    parser.add_argument("--keep", action="store_true", help="add what was found to the corpus")
    options = parser.parse_args(arguments)
    targets = TARGETS if options.target == "all" else (options.target,)
    statuses = [
        fuzz(target, options.seconds, FINDINGS, seed=options.seed, with_seeds=True, keep=options.keep)
        for target in targets
    ]
    return int(any(statuses))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
