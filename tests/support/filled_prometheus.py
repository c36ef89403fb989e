# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus with the series of recordings, as ``vllm-watch backfill`` writes them."""

from __future__ import annotations

import subprocess

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.monitoring import process
from tests.support.ports import free_port
from tests.support.waiting import SECONDS

from vllm_watch.cli.commands.backfill import write_backfill


STEP = 2.0
"""Seconds between two scrapes, in the recordings and of the Prometheus."""


def series_of(recording: Path, folder: Path) -> Path:
    """Write a recording's series into a folder, and return the file."""
    series = folder / f"{recording.name}.om"
    write_backfill(str(recording), [], STEP, str(series), lambda _: None)
    return series


@contextmanager
def filled_prometheus(folder: Path, *files: Path) -> Iterator[str]:
    """Run a Prometheus that has the series of these files; give its address."""
    for series in files:
        command = [
            "promtool",
            "tsdb",
            "create-blocks-from",
            "openmetrics",
            "--quiet",
            str(series),
            str(folder / "data"),
        ]
        subprocess.run(command, check=True, timeout=SECONDS, stdout=subprocess.DEVNULL)
    (folder / "prometheus.yml").write_text("")
    url = f"http://127.0.0.1:{free_port()}"
    options = (
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address={url.removeprefix('http://')}",
    )
    with process(["prometheus", *options], folder / "log", f"{url}/-/ready"):
        yield url
