# SPDX-License-Identifier: Apache-2.0
"""An orderly stop is no crash; processes that wait while they compile are none."""

from __future__ import annotations

import pytest

from tests.support.server_stories import BOTH, DEAD, LOG, READY, STARTING, Server, line, page


SHUTTING_DOWN = b"INFO:     Shutting down"
TRIGGERED = b"(APIServer pid=1) INFO 11-21 23:13:43 [launcher.py:254] [shutdown] API server: shutdown triggered"
COMPLETE = b"INFO:     Application shutdown complete."
FINISHED = b"INFO:     Finished server process [7]"
HANDLER = b"ERROR 11-21 02:35:10 [async_llm.py:890] AsyncLLM output_handler failed."
BUSY = line(1, generation=5.0)
LATE = (
    b"(EngineCore pid=7) INFO 11-21 02:35:10 [shm_broadcast.py:681] No available shared memory broadcast block found "
    b"in 60 seconds. This typically happens when some processes are hanging or doing some time-consuming work."
)


STARTED = (STARTING, READY, BUSY)
STORIES = {
    "What fails while a server that was told to stop has not ended is part of the stop, whatever follows.": (
        LOG, [STARTED, 5, SHUTTING_DOWN, 2, HANDLER, 90, STARTING, 600, "engine_dead = 0"]
    ),
    "A server whose engine died shuts down after it: that makes the death no part of the shutdown.": (
        LOG, [STARTED, 5, DEAD, 2, (TRIGGERED, SHUTTING_DOWN, COMPLETE, FINISHED), 600, "engine_dead = 1"]
    ),
    "A crash of the server that was started after an orderly stop is counted at once.": (
        LOG,
        [STARTED, 5, (SHUTTING_DOWN, HANDLER, FINISHED), 5, (STARTING, READY), 5, DEAD, "engine_dead = 1"],
    ),
    "A server that computes prompts minutes after it is said to shut down does not; its crash counts at once.": (
        LOG,
        [STARTED, 5, SHUTTING_DOWN, 130, line(1, prompt=9.0, generation=5.0), 5, DEAD, "engine_dead = 1"],
    ),
    "A crash ten minutes after a word of a shutdown counts at once.": (
        LOG, [STARTED, 5, TRIGGERED, *[10, line(1)] * 70, 5, DEAD, 5, FINISHED, 1, "engine_dead = 1"]
    ),
    "Unless the server finished what ran until then.": (
        LOG, [STARTED, 5, TRIGGERED, *[10, BUSY] * 70, 5, DEAD, 5, FINISHED, 1, "engine_dead = 0"]
    ),
    "From the log alone a server that was told to stop is not down while its statistics tell of tokens.": (
        LOG, [STARTED, 5, TRIGGERED, 5, "= serving", 10, line(0), "= down"]
    ),
    "One that only shuts down serves while it answers.": (
        BOTH, [(STARTING, READY), page(), 5, TRIGGERED, 130, page(), "= idle"]
    ),
    # Processes that wait for each other, perhaps because they compile.
    "Between the start's first words and its last they may wait as often as they like.": (
        LOG, [STARTING, 60, LATE, 60, LATE, 60, READY, "shm_timeout = 0"]
    ),
    "Until its first token, and for five minutes at most, a server that is ready may compile.": (
        LOG, [STARTING, 60, READY, 100, LATE, "shm_timeout = 0", 201, LATE, "shm_timeout = 1"]
    ),
    "A wait after tokens have come is counted, also soon after the start.": (
        LOG, [STARTED, 60, LATE, "shm_timeout = 1"]
    ),
    "Where the start is not known nothing is taken for compiling.": (LOG, [LATE, "shm_timeout = 1"]),
}  # fmt: skip


@pytest.mark.parametrize(("sources", "story"), STORIES.values(), ids=STORIES)
def test_what_counts_as_a_failure(sources, story):
    """The sentence says what is true, and the story shows it."""
    Server(**sources).tell(*story)


@pytest.mark.parametrize("begin", [SHUTTING_DOWN, TRIGGERED])
@pytest.mark.parametrize("end", [(HANDLER, FINISHED), (HANDLER, COMPLETE, FINISHED), (COMPLETE, HANDLER, FINISHED)])
def test_an_orderly_stop_is_no_crash(begin, end):
    """What fails between the beginning of a shutdown and its end, or just after it, is part of it."""
    Server(**LOG).tell(STARTED, 5, begin, 2, end, 600, "engine_dead = 0", "= down")
