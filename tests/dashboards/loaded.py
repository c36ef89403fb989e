# SPDX-License-Identifier: Apache-2.0
"""
A real Prometheus over the recordings, for what dashboards ask it.

Each recording is a server of its own name, in its own stretch of time; in one more stretch, ``fleet``, all of them end
together, and a second daemon watches one of the servers, too. Series are made as `vllm-watch backfill` makes them, with
the labels that a scrape adds; the shipped rules are evaluated over them by promtool, and what they record is loaded,
too, with ``ALERTS`` and ``ALERTS_FOR_STATE``. Some servers are given GPUs that they did not have (`gpus`), and two a KV
connector that measures what it does (`kv`). What the daemon says of itself, and links of servers, come from one that
runs while this is loaded: its page of one moment stands for all of them, so it has the right series and no course, but
for its heartbeats.

Blocks made of files have no marks of staleness. A look back of 15 s instead of Prometheus' 5 min stands in for them: a
series that ends is shown for so much longer than it would be.

``python -m tests.dashboards.loaded --port 9090 [--data DIR] [STRETCH…]`` serves it until it is interrupted.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

import click
import yaml

from prometheus_client.parser import text_string_to_metric_families
from tests.alerts.incidents import INCIDENTS
from tests.alerts.replay import NOTHING, STALE, STEP, evaluated, replayed
from tests.dashboards.gpus import gpu_series
from tests.dashboards.kv import kv_series
from tests.support.monitoring import get_text, process
from tests.support.ports import free_port
from tests.support.recordings import log_file
from tests.support.samples import sample
from tests.support.shared import new_folder
from tests.support.waiting import SECONDS
from tests.support.yaml_files import load_yaml

from vllm_watch.analysis.replay.recording import Recording
from vllm_watch.daemon.catalog.series import DAEMON
from vllm_watch.daemon.exposition.text_format import label_text


RECORDINGS: Mapping[str, Path] = {incident.name: incident.path for incident in INCIDENTS}
FLEET = "fleet"
STRETCHES = (*RECORDINGS, FLEET)
TESTED: tuple[str, ...] = sample(
    ("day", "stall", "dp1", "vl", "queue", "sustained", "rejections", "busy"), tuple(RECORDINGS)
)
"""The recordings that have a stretch of their own in tests; the fleet has all."""

DAEMON_ADDRESS, SECOND_ADDRESS = "127.0.0.1:9468", "127.0.0.1:9469"
WATCHED_TWICE = "vl"

LOOK_BACK = "15s"

_BEFORE = 8 * 86400
"""How long before the first recording the fleet is: no window of a rule is longer, so neither is seen in the other."""

LINKS = {
    "logs": "https://logs.example.com/explore?server={server}&since={from_seconds}&until={to_seconds}",
    "gpu": "/d/gpu?var-server={server}&from={from}&to={to}",
}
"""The links of all servers but those without."""

WITHOUT_LINKS = ("stall",)

_LINKED = "vllm_watch_server_links_info"
_OWN = frozenset(series.full_name for series in DAEMON.series) | {_LINKED}
_RECORDED = '{__name__=~"ALERTS|ALERTS_FOR_STATE|(engine|pair|server):.+"}'


class DataError(Exception):
    """A folder for data holds something else."""


class Span(NamedTuple):
    """A stretch of time, in seconds since the epoch; at both ends there are samples."""

    start: float
    end: float


class Loaded(NamedTuple):
    """A Prometheus: its address, and when each recording and the fleet is."""

    url: str
    spans: Mapping[str, Span]


class Stretch(NamedTuple):
    """
    Series of some servers and the daemons that watch them.

    Args:
        start: The first step, in seconds since the epoch.
        steps: How many steps there are, each `STEP` seconds after the one before.
        series: By its text, what each is at every step.
    """

    start: float
    steps: int
    series: Mapping[str, list[str]]

    @property
    def span(self) -> Span:
        """The first and the last step."""
        return Span(self.start, self.start + (self.steps - 1) * STEP)


class Page(NamedTuple):
    """What a daemon says of itself, and Prometheus of its process and scrape; `at` is in seconds since the epoch."""

    samples: tuple[tuple[str, Mapping[str, str], float], ...]
    at: float


@contextmanager
def loaded(names: Iterable[str] = STRETCHES, *, data: Path | None = None, port: int | None = None) -> Iterator[Loaded]:
    """
    Run a Prometheus over recordings until the context ends.

    Args:
        names: Which of `STRETCHES`.
        data: An empty folder for its data, or one that was filled by this function with the same stretches; by default
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
    Put stretches into a data folder, unless they are there already; return when each is.

    Raises:
        DataError: The folder has others, or something else.
    """
    chosen = set(names)
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "spans.yml"
    if kept.exists():
        spans = {name: Span(*span) for name, span in load_yaml(kept.read_text()).items()}
        if set(spans) != chosen:
            raise DataError(f"{folder} has {', '.join(spans)}, and not what is asked for")
        return spans
    if any(folder.iterdir()):
        raise DataError(f"{folder} is not empty, and what is in it was not put there by a load that came to its end")
    with tempfile.TemporaryDirectory() as temporary:
        text = Path(temporary) / "stretches.om"
        spans = _write(text, _stretches(chosen, daemon_page(Path(temporary))))
        command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "--quiet", str(text), str(folder / "tsdb")]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=SECONDS)
    kept.write_text(yaml.safe_dump({name: list(span) for name, span in spans.items()}, sort_keys=False))
    return spans


def filled() -> Path:
    """Return a new folder with the stretches of tests, which is there as long as their run."""
    folder = new_folder()
    fill(folder, (*TESTED, FLEET))
    return folder


def _write(path: Path, stretches: Iterable[tuple[str, Stretch]]) -> dict[str, Span]:
    """Write stretches, in order of time, as OpenMetrics; return when each is."""
    spans = {}
    with path.open("w", encoding="utf-8") as file:
        for name, stretch in stretches:
            for series, value, at in _samples(stretch):
                file.write(f"{series} {value!r} {at:.3f}\n")
            spans[name] = stretch.span
        file.write("# EOF\n")
    return spans


def _samples(stretch: Stretch) -> Iterator[tuple[str, float, float]]:
    """Yield all samples and those that the rules make of them; the samples of each series are in order of time."""
    for key, values in stretch.series.items():
        for step, text in enumerate(values):
            if text not in {NOTHING, STALE}:
                yield key, float(text), stretch.start + step * STEP
    for moment, samples in evaluated(stretch.series, stretch.steps, _RECORDED).items():
        for labels, value in samples.items():
            name, *rest = labels
            key = name[1] + "{" + ",".join(f'{label}="{text}"' for label, text in rest) + "}"
            since = stretch.start if name[1] == "ALERTS_FOR_STATE" else 0.0
            yield key, value + since, stretch.start + moment


def _stretches(names: Collection[str], page: Page) -> Iterator[tuple[str, Stretch]]:
    """Yield the stretches in order of time."""
    wanted = RECORDINGS if FLEET in names else names
    watched = {name: _watched(name, Recording(folder)) for name, folder in RECORDINGS.items() if name in wanted}
    if FLEET in names:
        yield FLEET, _fleet(watched, page)
    for name, stretch in sorted(watched.items(), key=lambda item: item[1].start):
        if name in names:
            yield name, _with_daemon(_seen_by(DAEMON_ADDRESS, stretch), page, DAEMON_ADDRESS, {name})


def _fleet(watched: Mapping[str, Stretch], page: Page) -> Stretch:
    """Return recordings as if they had ended together."""
    steps = max(stretch.steps for stretch in watched.values())
    start = min(stretch.start for stretch in watched.values()) - _BEFORE
    whole = Stretch(start, steps, {})
    for name, address in [(name, DAEMON_ADDRESS) for name in watched] + [(WATCHED_TWICE, SECOND_ADDRESS)]:
        late = steps - watched[name].steps
        moved = _seen_by(address, _moved(watched[name], start + late * STEP))
        series = {key: [NOTHING] * late + values for key, values in moved.series.items()}
        whole = whole._replace(series={**whole.series, **series})
    whole = _with_daemon(whole, page, DAEMON_ADDRESS, watched)
    return _with_daemon(whole, page, SECOND_ADDRESS, {WATCHED_TWICE})


def _watched(name: str, recording: Recording) -> Stretch:
    """Return a recording's series as its daemon shows them, with the GPUs and the KV connectors that it is given."""
    series, steps = replayed(recording.path, has_slo=True, has_log=True, has_metrics=True)
    return Stretch(recording.started, steps, {**series, **gpu_series(name, steps), **kv_series(name, steps)})


def _moved(stretch: Stretch, start: float) -> Stretch:
    """Return a stretch as if it had begun at another time; so do the times that are values."""
    later = start - stretch.start
    moved = {
        key: [text if text in {NOTHING, STALE} else repr(float(text) + later) for text in values]
        for key, values in stretch.series.items()
        if _is_time(key.split("{")[0])
    }
    return stretch._replace(start=start, series={**stretch.series, **moved})


def _seen_by(address: str, stretch: Stretch) -> Stretch:
    """Return a stretch with the labels that a scrape of the daemon adds."""
    target = label_text(_target(address).items()).strip("{}")
    return stretch._replace(series={f"{key[:-1]},{target}}}": values for key, values in stretch.series.items()})


def _target(address: str) -> dict[str, str]:
    return {"job": "vllm-watch", "instance": address}


def _is_time(name: str) -> bool:
    return name.endswith(("_timestamp_seconds", "_start_time_seconds"))


def _with_daemon(stretch: Stretch, page: Page, address: str, servers: Collection[str]) -> Stretch:
    """Return a stretch with what the daemon of these servers says of itself, its times moved to the start."""
    target = _target(address)
    own = {f"up{label_text(target.items())}": ["1"] * stretch.steps}
    for name, labels, value in page.samples:
        if labels.get("server") is None or labels["server"] in servers:
            moved = value - page.at + stretch.start if _is_time(name) else value
            later = STEP if name.endswith("_heartbeat_timestamp_seconds") else 0
            values = [repr(moved + step * later) for step in range(stretch.steps)]
            own[name + label_text({**labels, **target}.items())] = values
    return stretch._replace(series={**stretch.series, **own})


def daemon_page(folder: Path) -> Page:
    """Run the daemon over the recordings' logs; return what it says of itself."""
    listen = f"127.0.0.1:{free_port()}"
    config = folder / "vllm-watch.yml"
    servers = [
        {
            "name": name,
            "log": str(log_file(name)),
            # Nobody answers there: the daemon's threads are wanted, not the page.
            "metrics": {"url": "http://127.0.0.1:9/metrics"},
            "probe": {"every": "60s"},
            **({} if name in WITHOUT_LINKS else {"links": dict(LINKS)}),
        }
        for name in RECORDINGS
    ]
    config.write_text(
        yaml.safe_dump({"listen": listen, "checkpoint": str(folder / "checkpoint.json"), "servers": servers})
    )
    command = [sys.executable, "-m", "vllm_watch", "run", "--config", str(config)]
    with process(command, folder / "daemon.log", f"http://{listen}/-/ready"):
        began = time.time()
        text, at = get_text(f"http://{listen}/metrics"), time.time()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    own = [sample for sample in samples if sample.name in _OWN or sample.name.startswith("process_")]
    scrape = (("scrape_duration_seconds", {}, at - began), ("scrape_samples_scraped", {}, float(len(samples))))
    return Page((*((sample.name, sample.labels, sample.value) for sample in own), *scrape), at)


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


@click.command()
@click.option("--port", type=int, default=9090, show_default=True, help="Port of loopback to listen on.")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="Where to keep the data for the next time, which takes what is there as it is: remove it after changes.",
)
@click.argument("names", metavar="[STRETCH]…", type=click.Choice(STRETCHES), nargs=-1)
def main(port: int, data: Path | None, names: tuple[str, ...]) -> None:
    """Serve a Prometheus with recordings and the fleet of them (all, if none is named) until interrupted."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with loaded(names or STRETCHES, data=data, port=port) as prometheus:
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
