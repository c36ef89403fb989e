# SPDX-License-Identifier: Apache-2.0
"""Limits of the daemon that texts of the catalogue name."""

from __future__ import annotations


MAX_HANGING_PROCESSES = 64
"""When discovery waits for so many, it asks no other: each has a thread that nothing can end."""
