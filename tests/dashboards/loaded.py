# SPDX-License-Identifier: Apache-2.0
"""
A real Prometheus over the recordings, for what dashboards ask it.

Each recording is a server of its own name, in its own stretch of time. Its series are made as `vllm-watch backfill`
makes them, with the labels that a scrape adds; the shipped rules are evaluated over them by promtool, and what they
record is loaded, too, with ``ALERTS`` and ``ALERTS_FOR_STATE``. What the daemon says of itself comes from a daemon that
runs while this is loaded: its page of one moment stands for all of them, so it has the right series and no course.

Blocks made of files have no marks of staleness. A look back of 15 s instead of Prometheus' 5 min stands in for them: a
series that ends is shown for so much longer than it would be.

``python -m tests.dashboards.loaded --port 9090 [--data DIR] [RECORDING…]`` serves it until it is interrupted.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

import click
import yaml

from prometheus_client.parser import text_string_to_metric_families
from tests.alerts.incidents import INCIDENTS
from tests.alerts.replay import CHAT, NOTHING, STALE, STEP, evaluated, series_of
from tests.support.monitoring import free_port, get_text, process

from vllm_watch.exposition.openmetrics import _label_text
from vllm_watch.exposition.series import DAEMON
from vllm_watch.recording import Recording
from vllm_watch.state.server import ServerSettings


RECORDINGS: Mapping[str, Path] = {incident.name: incident.folder for incident in INCIDENTS}
TARGET = {"job": "vllm-watch", "instance": "127.0.0.1:9468"}
"""The labels that a scrape of the daemon adds."""

LOOK_BACK = "15s"

_BUILD_SECONDS = 120
_OWN = frozenset(series.full_name for series in DAEMON.series)
_RECORDED = '{__name__=~"ALERTS|ALERTS_FOR_STATE|engine:.+"}'
_ENDINGS_OF_TIMES = ("_timestamp_seconds", "_start_time_seconds")

Sample = tuple[str, float, float]
"""A series with its labels as text, the value, and the time in seconds since the epoch."""


class DataError(Exception):
    """A folder for data holds something else."""


class Span(NamedTuple):
    """The stretch of time of a recording, in seconds since the epoch; at both ends there are samples."""

    start: float
    end: float


class Loaded(NamedTuple):
    """A Prometheus: its address, and which recordings it has, when."""

    url: str
    spans: Mapping[str, Span]


@contextmanager
def loaded(names: Iterable[str] = RECORDINGS, *, data: Path | None = None, port: int | None = None) -> Iterator[Loaded]:
    """
    Run a Prometheus over recordings until the context ends.

    Args:
        names: Which recordings.
        data: An empty folder for its data, or one that was filled by this function with the same recordings; by default
            one that is gone when the context ends.
        port: Where on loopback it listens; by default on any free port.

    Raises:
        DataError: The folder has other recordings, or something else.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = data or Path(temporary) / "data"
        spans = fill(folder, names)
        config = Path(temporary) / "prometheus.yml"
        config.write_text("{}")
        url = f"http://127.0.0.1:{port or free_port()}"
        command = [
            *("prometheus", f"--config.file={config}", f"--web.listen-address={url.removeprefix('http://')}"),
            *(f"--storage.tsdb.path={folder / 'tsdb'}", "--storage.tsdb.retention.time=100y"),
            f"--query.lookback-delta={LOOK_BACK}",
        ]
        with process(command, Path(temporary) / "prometheus.log", f"{url}/-/ready"):
            yield Loaded(url, spans)


def fill(folder: Path, names: Iterable[str]) -> Mapping[str, Span]:
    """
    Put recordings into a data folder, unless they are there already; return when each is.

    Raises:
        DataError: The folder has other recordings, or something else.
    """
    recordings = sorted((Recording(RECORDINGS[name]) for name in set(names)), key=lambda recording: recording.started)
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "spans.yml"
    if kept.exists():
        spans = {name: Span(*span) for name, span in yaml.safe_load(kept.read_text()).items()}
        if list(spans) != [recording.folder.name for recording in recordings]:
            raise DataError(f"{folder} has the recordings {', '.join(spans)}, which are not those that are asked for")
        return spans
    if any(folder.iterdir()):
        raise DataError(f"{folder} is not empty, and what is in it was not put there by a load that came to its end")
    with tempfile.TemporaryDirectory() as temporary:
        text = Path(temporary) / "recordings.om"
        spans = _write(text, recordings, daemon_page(Path(temporary), [each.folder.name for each in recordings]))
        command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "--quiet", str(text), str(folder / "tsdb")]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=_BUILD_SECONDS)
    kept.write_text(yaml.safe_dump({name: list(span) for name, span in spans.items()}, sort_keys=False))
    return spans


def _write(path: Path, recordings: Iterable[Recording], page: Sequence[Sample]) -> dict[str, Span]:
    """Write recordings, in order of time, as OpenMetrics; return when each is."""
    spans = {}
    with path.open("w", encoding="utf-8") as file:
        for recording in recordings:
            last = recording.started
            for series, value, at in samples_of(recording, page):
                file.write(f"{series} {value!r} {at:.3f}\n")
                last = max(last, at)
            spans[recording.folder.name] = Span(recording.started, last)
        file.write("# EOF\n")
    return spans


def samples_of(recording: Recording, page: Sequence[Sample]) -> Iterator[Sample]:
    """Yield all samples of a recording and of the daemon that watches it; those of a series are in order of time."""
    settings = ServerSettings(
        recording.folder.name, has_log=True, metrics_interval=float(STEP), slo=CHAT, labels=TARGET
    )
    series, steps = series_of(recording, settings)
    del series["vllm_watch_build_info"]  # It is on the daemon's page, with its labels.
    series.update({key: [repr(value)] * steps for key, value in _page_of(recording, page)})
    for key, values in series.items():
        for step, text in enumerate(values):
            if text not in {NOTHING, STALE}:
                yield key, float(text), recording.started + step * STEP
    for moment, samples in evaluated(series, steps, _RECORDED).items():
        for labels, value in samples.items():
            name, *rest = labels
            key = name[1] + "{" + ",".join(f'{label}="{text}"' for label, text in rest) + "}"
            since = recording.started if name[1] == "ALERTS_FOR_STATE" else 0.0
            yield key, value + since, recording.started + moment


def _page_of(recording: Recording, page: Iterable[Sample]) -> Iterator[tuple[str, float]]:
    """Yield what a daemon says of itself that watches this recording, its times moved to the recording's start."""
    for key, value, at in page:
        if "server=" not in key or f'server="{recording.folder.name}"' in key:
            is_time = key.split("{")[0].endswith(_ENDINGS_OF_TIMES)
            yield key, value - at + recording.started if is_time else value


def daemon_page(folder: Path, names: Iterable[str]) -> list[Sample]:
    """Run the daemon over recordings' logs; return what it says of itself, and its process' metrics."""
    listen = f"127.0.0.1:{free_port()}"
    config = folder / "vllm-watch.yml"
    servers = [
        {
            "name": name,
            "log": str(RECORDINGS[name] / "vllm.log"),
            # Nobody answers there: the daemon's threads are wanted, not the page.
            "metrics": {"url": "http://127.0.0.1:9/metrics"},
            "probe": {"every": "60s"},
        }
        for name in names
    ]
    config.write_text(
        yaml.safe_dump({"listen": listen, "checkpoint": str(folder / "checkpoint.json"), "servers": servers})
    )
    command = [sys.executable, "-m", "vllm_watch.cli", "run", "--config", str(config)]
    with process(command, folder / "daemon.log", f"http://{listen}/-/ready"):
        text, at = get_text(f"http://{listen}/metrics"), time.time()
    return [
        (sample.name + _label_text({**sample.labels, **TARGET}), sample.value, at)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name in _OWN or sample.name.startswith("process_")
    ]


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


@click.command()
@click.option("--port", type=int, default=9090, show_default=True, help="Port of loopback to listen on.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="Where to keep the data for the next time, which takes what is there as it is: remove it after changes.",
)
@click.argument("names", metavar="[RECORDING]…", type=click.Choice(sorted(RECORDINGS)), nargs=-1)
def main(port: int, data: Path | None, names: tuple[str, ...]) -> None:
    """Serve a Prometheus with the recordings (all, if none is named) until interrupted."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with loaded(names or RECORDINGS, data=data, port=port) as prometheus:
            click.echo(prometheus.url)
            for name, span in prometheus.spans.items():
                click.echo(f"{name:12} --from {_iso(span.start)} --to {_iso(span.end)}")
            sys.stdout.flush()
            while True:
                signal.pause()  # A signal that ends this raises.
    except DataError as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        click.echo("ended", err=True)


if __name__ == "__main__":
    main()
