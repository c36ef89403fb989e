# SPDX-License-Identifier: Apache-2.0
"""``vllm-watch backfill``: a recording or an old log as OpenMetrics with timestamps."""

from __future__ import annotations

import sys

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from vllm_watch.analysis.backtest.subjects import FileSource, file_sources
from vllm_watch.analysis.loadtest.source_names import paths_of, queries_of
from vllm_watch.analysis.replay.finished_log import Progress
from vllm_watch.analysis.replay.replay import run_logs, run_recording
from vllm_watch.cli.commands.options import (
    check_output,
    duration_option,
    opened,
    output_option,
    progress_bar,
)
from vllm_watch.cli.commands.source_options import given_sources, sources_argument
from vllm_watch.daemon.config.texts import DEFAULT_NAME
from vllm_watch.daemon.exposition.time_series_file import TimeSeriesFile
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch.daemon.state.snapshot import ServerSnapshot
from vllm_watch.daemon.support.errors import FileError, UsageError
from vllm_watch.daemon.support.whole_file import whole_file


@click.command("backfill")
@sources_argument
@duration_option(
    "--step",
    default="5s",
    show_default=True,
    help="Time between two samples.",
)
@output_option
def command(sources: tuple[str, ...], step: float, output: str | None) -> None:
    """
    Write a recording or an old log as OpenMetrics, for promtool.

    The file has the series with timestamps. A SOURCE is a recording, or a log of one server, in this machine's time
    zone.
    """
    check_output(output, sources)
    given = given_sources(sources)
    if queries_of(given):
        raise UsageError("what a Prometheus has needs no backfill: give a recording or a log")
    with progress_bar("backfill") as progress:
        samples = write_backfill(paths_of(given), step, output, progress)
    click.echo(f"{samples} samples. Load them with: promtool tsdb create-blocks-from openmetrics FILE DIR", err=True)


def write_backfill(paths: Sequence[str], step: float, output: str | None, progress: Progress) -> int:
    """
    Write the series of all servers of a recording, or of old logs of one server.

    Returns:
        How many samples were written.

    Raises:
        FileError: A file cannot be read or written, or nothing in it becomes a sample.
        UsageError: There are a recording and something else.
    """
    sources = file_sources(paths)
    recording = next((source.name for source in sources if source.is_recording), None)
    if recording is not None and len(sources) > 1:
        raise UsageError("give one recording, or the logs of one server")
    gathered = TimeSeriesFile()
    snapshots = _of_recording(recording, step, progress) if recording else _of_logs(sources, step, progress)
    for snapshot in snapshots:
        gathered.add(snapshot)
    if not gathered.samples:
        raise FileError(f"{', '.join(paths)}: nothing to backfill: no statistics of a vLLM server are in it")
    _write(gathered, output)
    return gathered.samples


def _of_recording(path: str, step: float, progress: Progress) -> Iterator[ServerSnapshot]:
    recording = opened(path)
    for number, (name, sources) in enumerate(recording.sources.items()):

        def part(share: float, done: int = number) -> None:
            progress((done + share) / len(recording.servers))

        state = ServerState(sources.settings(name))
        yield from run_recording(recording, state, step, part, name)


def _of_logs(logs: Sequence[FileSource], step: float, progress: Progress) -> Iterator[ServerSnapshot]:
    state = ServerState(ServerSettings(DEFAULT_NAME, has_log=True, metrics_interval=None))
    last = 0.0
    for log in logs:
        for snapshot in run_logs(log.paths, state, step, progress):
            if snapshot.at <= last:
                continue  # Logs that overlap: Prometheus accepts one sample for a moment.
            last = snapshot.at
            yield snapshot


def _write(gathered: TimeSeriesFile, output: str | None) -> None:
    if output is None:
        sys.stdout.writelines(gathered.texts())
        return
    with whole_file(Path(output)) as file:
        file.writelines(text.encode() for text in gathered.texts())
