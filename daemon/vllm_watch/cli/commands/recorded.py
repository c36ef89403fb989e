# SPDX-License-Identifier: Apache-2.0
"""What `demo` and `backfill` replay: a recording of the command line."""

from __future__ import annotations

from pathlib import Path

import click

from vllm_watch.analysis.replay.recording import Recording
from vllm_watch.daemon.support.printable import printable


def opened(path: str) -> Recording:
    """
    Open a recording; say on standard error if it breaks off.

    Raises:
        FileError: It cannot be read, or is no recording.
    """
    recording = Recording(Path(path))
    if recording.broken_off is not None:
        click.echo(f"vllm-watch: {printable(path)}: {printable(recording.broken_off)}", err=True)
    return recording
