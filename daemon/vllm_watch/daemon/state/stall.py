# SPDX-License-Identifier: Apache-2.0
"""
When an engine is stalled: it has work, and makes no progress for too long: 30 s unless configured, and five minutes
before the first token after a start. What counts as progress, and that three scrapes must show none, is in `progress`.

A hanging engine makes no progress, but a healthy engine may also make none for a while. If one long step can look like
a stall, the engine is called stalled only after a longer time. `precedence` decides which source is used.
"""

from __future__ import annotations

from vllm_watch.daemon.catalog.reasons import StallReason
from vllm_watch.daemon.state.engine_log import EngineLog
from vllm_watch.daemon.state.progress import EngineProgress
from vllm_watch.daemon.state.server_life import FIRST_TOKEN_SECONDS


FIRST_STEP_FACTOR = 4.0
"""Times `stall_after` while there is work and no token of it yet: that may be one long step."""
LOG_ONLY_FACTOR = 2.0
"""Times `stall_after` with a log only: it does not show one long prompt before its first token."""
REMOTE_FACTOR = 2.75
"""Times `stall_after` while all requests wait for something remote: a healthy one has taken 76 s."""


def stall_in_scrapes(
    progress: EngineProgress, running: float, at: float, stall_after: float, woke_at: float
) -> StallReason | None:
    """
    Return why an engine with work is stalled by the last scrapes, or `None` if it is not.

    Args:
        progress: What the scrapes show of it.
        running: How many of its requests run.
        at: When the last scrape was read.
        stall_after: Seconds without progress after which it is stalled, as configured.
        woke_at: When it last woke up: no progress before that proves nothing.
    """
    still = progress.still_seconds(at, woke_at)
    if still < seconds_until_stalled(progress, stall_after):
        return None
    if not progress.progress.has_served:
        return "no_first_token"
    if at - progress.stirred_at < still:
        return "nothing_computed"
    return "batch_stands_still" if running else "queue_stands_still"


def stall_in_log(engine: EngineLog, now: float, stall_after: float, woke_at: float) -> StallReason | None:
    """Return why an engine is stalled by its last line of statistics and the silence after it, or `None`."""
    if not engine.ended_still() or now - max(engine.stands_since, woke_at) < _seconds_until_stalled_by_log(
        engine, stall_after
    ):
        return None
    return "no_first_token" if engine.moved_at is None else "log_fell_silent"


def seconds_until_stalled(progress: EngineProgress, stall_after: float) -> float:
    """Return for how many seconds an engine may make no progress: longer where that may be one long step."""
    if not progress.progress.has_served:
        return max(stall_after, FIRST_TOKEN_SECONDS)
    if progress.is_remote:
        return REMOTE_FACTOR * stall_after
    return stall_after if progress.has_token_of_work else FIRST_STEP_FACTOR * stall_after


def _seconds_until_stalled_by_log(engine: EngineLog, stall_after: float) -> float:
    enough = LOG_ONLY_FACTOR * stall_after
    return max(enough, FIRST_TOKEN_SECONDS) if engine.moved_at is None else enough
