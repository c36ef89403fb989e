# SPDX-License-Identifier: Apache-2.0
"""Limits of the daemon that several packages or texts name."""

from __future__ import annotations


MAX_ENGINES = 256
"""Of so many engines what one log reports is kept; /metrics has a limit of its own in the parsers."""

MAX_HANGING_PROCESSES = 64
"""While discovery waits for this many processes, it reads no other: each holds a thread that cannot be ended."""

STALL_SECONDS = 30.0
"""Seconds for which an engine with work may make no progress, unless the server's `stall_after` says otherwise."""

SERVERS_WITH_HOUR = 12
"""Of up to so many servers `top` and the status page always ask for the last hour; of more it would be megabytes."""

STEP_TIME_SECONDS = 300
"""The time of a decode step is the median of this period."""
