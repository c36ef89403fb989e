# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.incidents [NAME …]``: what becomes of the stories; of all, `alerts/INCIDENTS.md` is written."""

from __future__ import annotations

import sys

from collections.abc import Iterator

from tests.incidents import table
from tests.incidents.play import Played, play
from tests.incidents.story import KINDS, Story, stories
from tests.incidents.verdict import faults, played, sent


def main(names: list[str]) -> int:
    """Print what becomes of the stories of these names, or of all; return 1 if it is not what should become of any."""
    try:
        return _played(names)
    except ValueError as error:  # A story with a mistake.
        print(error, file=sys.stderr)
        return 2


def _played(names: list[str]) -> int:
    status = 0
    every = {name: story for kind in KINDS for name, story in stories(kind).items()}
    if unknown := set(names) - every.keys():
        print(f"no such story: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    wanted = {name: every[name] for name in names} if names else every
    outcomes = play(wanted) if names else played()
    for name, story in wanted.items():
        wrong = list(faults(story, outcomes[name]))
        print(*_described(name, story, outcomes[name], wrong), sep="\n")
        status |= bool(wrong)
    if not names:
        table.FILE.write_text(table.document(), encoding="utf-8")
    return status


def _described(name: str, story: Story, outcome: Played, wrong: list[str]) -> Iterator[str]:
    yield f"{name}: {story.title}"
    yield f"    {', '.join(f'{state} from {since:.0f} s' for state, since in outcome.states.items())}"
    told = sent(outcome.fired)
    for alert in outcome.fired:
        inhibited = "" if alert in told else " (inhibited)"
        end = "to the end" if alert.end is None else f"to {alert.end:.0f}"
        yield f"    {alert.start:6.0f} s {end:12} {alert.severity:8} {alert.alertname}{inhibited}"
    yield from (f"    WRONG: {fault}" for fault in wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
