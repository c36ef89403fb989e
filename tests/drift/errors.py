# SPDX-License-Identifier: Apache-2.0
"""What ends the command with one sentence."""

from __future__ import annotations


class DriftError(Exception):
    """The sources cannot be read; the message is a whole sentence for the maintainer."""
