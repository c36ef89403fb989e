# SPDX-License-Identifier: Apache-2.0
"""
Fuzzing with atheris: ``make fuzz ARGS='exposition --seconds 600'``, or ``python -m tests.fuzz exposition``.

A finding is written to ``tests/fuzz/findings``. What is mended goes into ``corpus/TARGET.jsonl``: name its file after
what it is about, and ``--add`` it; every test run replays the corpus. ``--keep`` adds what a run found: few inputs that
cover all that was covered.
"""

from __future__ import annotations

import argparse
import sys

from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.runs import FINDINGS, add_to_corpus, fuzz
from tests.fuzz.targets import TARGETS


def main(arguments: Sequence[str]) -> int:
    """Run one target, or all one after the other; return 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("target", choices=["all", *TARGETS])
    parser.add_argument("--seconds", type=int, default=60, help="how long to look at each target")
    parser.add_argument("--seed", type=int, default=0, help="repeats a run; 0 is chance")
    parser.add_argument("--keep", action="store_true", help="add what was found to the corpus")
    parser.add_argument("--add", type=Path, metavar="FILE", help="add this input to the corpus, and do not search")
    options = parser.parse_args(arguments)
    if options.add is not None:
        if options.target == "all":
            parser.error("--add needs one target")
        add_to_corpus(options.target, [options.add], named=True)
        return 0
    targets = TARGETS if options.target == "all" else (options.target,)
    limit = f"-max_total_time={options.seconds}"
    statuses = [
        fuzz(target, limit, FINDINGS, seed=options.seed, with_seeds=True, keep=options.keep) for target in targets
    ]
    return int(any(statuses))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
