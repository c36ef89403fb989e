# SPDX-License-Identifier: Apache-2.0
"""
The command line.

Exit status: 0 fine, 1 a problem was found or a file cannot be read or written, 2 wrong usage or configuration. Each
command loads what it needs and no more: `once` is run over many logs.
"""

from __future__ import annotations

import sys

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import click

from vllm_watch import __version__
from vllm_watch.grafana.commands import grafana
from vllm_watch.grafana.connection import DEFAULT_URL
from vllm_watch.support.errors import UsageError, VllmWatchError
from vllm_watch.support.log_options import LOG_FORMATS, LOG_LEVELS, LogFormat, LogLevel
from vllm_watch.support.report_formats import COMPARISON_FORMATS, REPORT_FORMATS, ComparisonFormat, ReportFormat
from vllm_watch.support.standard_streams import ReaderGoneError, guard_standard_streams


_Command = TypeVar("_Command", bound=Callable[..., Any])

_PARTS = 1000
"""How finely the progress bar moves."""

_ERASE_LINE_ABOVE = "\x1b[1A\x1b[2K"

_LOG = click.option(
    "--log", "logs", multiple=True, metavar="PATH", help="A server's log, a path or glob; may be given several times."
)
_METRICS = click.option(
    "--metrics", "metrics", multiple=True, metavar="URL", help="A server's /metrics; the first goes with the first log."
)
_CONFIG = click.option(
    "--config", "config_file", metavar="FILE", help="A configuration (YAML), instead of --log and --metrics."
)
_LISTEN = click.option("--listen", metavar="HOST:PORT", help="Address to serve on [default: 127.0.0.1:9468].")
_LOG_LEVEL = click.option(
    "--log-level",
    type=click.Choice(LOG_LEVELS),
    default="info",
    show_default=True,
    help="The lowest severity in the daemon's own log, which is written to standard error.",
)
_LOG_FORMAT = click.option(
    "--log-format",
    type=click.Choice(LOG_FORMATS),
    help="The form of the daemon's own log [default: console on a terminal, else json].",
)
_OBJECTIVE = click.option(
    "--objective",
    metavar="chat|batch|LIMITS",
    help="What requests have to be answered within: chat, batch, or limits such as ttft=300ms,tpot=40ms.",
)
_ZONE = click.option(
    "--zone",
    metavar="ZONE",
    help="Time zone of logs and results, such as Asia/Shanghai or +08:00 [default: this machine's].",
)
_MARK = (
    click.option(
        "--mark", is_flag=True, help="Show the runs as regions on Grafana's dashboards; if that fails, only say so."
    ),
    click.option(
        "--grafana-url",
        default=DEFAULT_URL,
        show_default=True,
        envvar="GRAFANA_URL",
        show_envvar=True,
        metavar="URL",
        help="Grafana's address, for --mark.",
    ),
    click.option(
        "--grafana-token-file",
        envvar="GRAFANA_TOKEN_FILE",
        show_envvar=True,
        metavar="FILE",
        help="Holds a service account's token (role Editor), for --mark.",
    ),
)
_PROMETHEUS = (
    click.option("--prometheus", "url", metavar="URL", help="Read a server's series from this Prometheus."),
    click.option("--server", metavar="NAME", help="Which server of it: the label `server`."),
    click.option("--from", "start", metavar="TIME", help='From when, such as -2h, "2026-11-20 14:00" or RFC 3339.'),
    click.option("--to", "end", metavar="TIME", help="Until when [default: now]."),
    click.option("--bearer-token-file", "token_file", metavar="FILE", help="The file with its bearer token."),
    click.option("--ca-file", metavar="FILE", help="The authorities to trust for its certificate, in PEM format."),
)
_STEP = click.option("--step", default="5s", show_default=True, metavar="DURATION", help="Time between two samples.")


def _with(options: Sequence[Callable[[_Command], _Command]]) -> Callable[[_Command], _Command]:
    """Give a command several options, in this order."""

    def add(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="vllm-watch")
def cli() -> None:
    """Watch vLLM servers: read their logs and /metrics, and export Prometheus series with stable names."""


@cli.command()
@_CONFIG
@_LOG
@_METRICS
@_LISTEN
@_LOG_LEVEL
@_LOG_FORMAT
def run(  # noqa: PLR0913, PLR0917 - Each option is a parameter.
    config_file: str | None,
    logs: tuple[str, ...],
    metrics: tuple[str, ...],
    listen: str | None,
    log_level: LogLevel,
    log_format: LogFormat | None,
) -> None:
    """
    Run the daemon until SIGTERM or SIGINT.

    With --config, SIGHUP reads the file again. Without --config, --log and --metrics it watches the vLLM servers that
    run on this machine, also those that start later; SIGHUP makes it search for them at once.
    """
    from vllm_watch.commands.run import run_daemon
    from vllm_watch.commands.watched import Selection
    from vllm_watch.support.logging_setup import configure_log, hold_standard_streams

    hold_standard_streams()
    configure_log(log_level, log_format)
    run_daemon(Selection(config_file, logs, metrics, listen))


@cli.command()
@_LOG
@click.option("--metrics", metavar="URL|FILE", help="A server's /metrics, or a file with its content.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["prometheus", "json", "events"]),
    default="prometheus",
    show_default=True,
    help="prometheus and json: the values at the end; events: what each line of the log means, as JSON lines.",
)
def once(logs: tuple[str, ...], metrics: str | None, form: str) -> None:
    """Read a finished log, a /metrics or both, print the result, and exit. Times are those of the log."""
    from vllm_watch.commands.once import as_json, as_prometheus, log_records, read_once

    if not logs and not metrics:
        raise UsageError("give --log PATH, --metrics URL or FILE, or both")
    if form == "events":
        if metrics:
            raise UsageError("--format events reads only logs: omit --metrics")
        for path in logs:
            sys.stdout.buffer.writelines(log_records(path))
        return
    with _progress("once") as progress:
        found = read_once(logs, metrics, progress)
    sys.stdout.buffer.write(as_json(found.snapshot) if form == "json" else as_prometheus(found.snapshot))
    if found.metrics_problem:
        from vllm_watch.catalog.reasons import explain

        click.echo(f"vllm-watch: {metrics}: {explain('metrics', found.metrics_problem)}", err=True)
        sys.exit(1)


@cli.command()
@_CONFIG
@_LOG
@_METRICS
def check(config_file: str | None, logs: tuple[str, ...], metrics: tuple[str, ...]) -> None:
    """
    Validate the configuration, poll each source once, and report what works and what is missing.

    Without --config, --log and --metrics it checks the vLLM servers that run on this machine.
    """
    from vllm_watch.commands.check import check as report_on
    from vllm_watch.commands.check import selected_servers
    from vllm_watch.commands.watched import Selection
    from vllm_watch.support.logging_setup import configure_log
    from vllm_watch.support.report import print_report

    configure_log("error")
    is_wrong = print_report(report_on(selected_servers(Selection(config_file, logs, metrics))))
    sys.exit(1 if is_wrong else 0)


@cli.command()
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--write", "file", metavar="FILE", help="Write a configuration for run --config with what was found.")
@click.option("--force", is_flag=True, help="Overwrite FILE if it exists.")
def discover(form: str, file: str | None, *, force: bool) -> None:
    """List the vLLM servers of this machine, where their logs are, and what to change to see more of them."""
    from vllm_watch.commands.discover import discover as report_on

    if force and file is None:
        raise UsageError("--force requires --write FILE")
    sys.exit(1 if report_on(form, file, force=force) else 0)


@cli.command()
@click.option("--recording", metavar="DIR|FILE", help="A recorded server [default: the one in the package].")
@click.option("--server", metavar="NAME", help="Which server, if the recording has several.")
@click.option(
    "--speed",
    type=click.FloatRange(0.1, 100),
    default=10.0,
    show_default=True,
    help="1 is real time.",
)
@_LISTEN
@_LOG_LEVEL
@_LOG_FORMAT
def demo(  # noqa: PLR0913, PLR0917 - Each option is a parameter.
    recording: str | None,
    server: str | None,
    speed: float,
    listen: str | None,
    log_level: LogLevel,
    log_format: LogFormat | None,
) -> None:
    """Run the daemon on a recording of a real server, in a loop."""
    from vllm_watch.commands.demo import run_demo
    from vllm_watch.support.logging_setup import configure_log, hold_standard_streams

    hold_standard_streams()
    configure_log(log_level, log_format)
    run_demo(recording, server, speed, listen)


@cli.command()
@click.option("--recording", metavar="DIR|FILE", help="One or more recorded servers.")
@click.option("--log", "logs", multiple=True, metavar="PATH", help="An old log, in this machine's time zone.")
@_STEP
@click.option("-o", "--output", metavar="FILE", help="Where to write [default: standard output].")
def backfill(recording: str | None, logs: tuple[str, ...], step: str, output: str | None) -> None:
    """Write the series of a recording or an old log as OpenMetrics with timestamps, for promtool."""
    from vllm_watch.commands.backfill import write_backfill

    if bool(recording) == bool(logs):
        raise UsageError("give either --recording DIR or FILE, or --log PATH")
    with _progress("backfill") as progress:
        samples = write_backfill(recording, logs, _seconds("--step", step), output, progress)
    click.echo(f"{samples} samples. Load them with: promtool tsdb create-blocks-from openmetrics FILE DIR", err=True)


@cli.command()
@click.argument("sources", nargs=-1, metavar="SOURCE...")
@click.option("-o", "--output", metavar="FILE", help="Where to write [default: standard output].")
@click.option(
    "--format",
    "form",
    type=click.Choice(REPORT_FORMATS),
    help="[default: by the ending of FILE, else text].",
)
@_OBJECTIVE
@_ZONE
@_with(_MARK)
@_with(_PROMETHEUS)
def report(  # noqa: PLR0913, PLR0917 - Each option is a parameter.
    sources: tuple[str, ...],
    output: str | None,
    form: ReportFormat | None,
    objective: str | None,
    zone: str | None,
    mark: bool,  # noqa: FBT001 - An option.
    grafana_url: str,
    grafana_token_file: str | None,
    **prometheus: str | None,
) -> None:
    """
    Write a load test in numbers and plots.

    A SOURCE is a server's log (a rotated one by its own path), a recording, or what a benchmark wrote: the JSON of vllm
    bench serve, throughput or latency, or what it printed. A Prometheus is one more source. Sources of one test belong
    together: what the client measured, and what the server did meanwhile.
    """
    from vllm_watch.commands.marks import mark_runs, marking
    from vllm_watch.commands.report import PrometheusOptions, prometheus_query, read_options, write_report

    where = marking(mark=mark, grafana_url=grafana_url, grafana_token_file=grafana_token_file)
    query = prometheus_query(PrometheusOptions(**prometheus))
    if not sources and query is None:
        raise UsageError("give at least one SOURCE: a log, a recording or a benchmark's result; or --prometheus")
    options = read_options(objective, zone)._replace(prometheus=query)
    with _progress("report") as progress:
        found = write_report(sources, form, output, options, progress)
    mark_runs(found.runs, output, where, prometheus["server"])


@cli.command()
@click.argument("sides", nargs=-1, metavar="A B [C...]")
@click.option("--baseline", metavar="NAME", help="The side that the others are compared with [default: the first].")
@click.option("-o", "--output", metavar="FILE", help="Where to write [default: standard output].")
@click.option(
    "--format",
    "form",
    type=click.Choice(COMPARISON_FORMATS),
    help="[default: by the ending of FILE, else table].",
)
@click.option(
    "--fail-if",
    "rules",
    multiple=True,
    metavar="RULE",
    help="Exit with 1 if this is shown, such as 'ttft_ms.p99 > +10%'; may be repeated.",
)
@click.option("--force", is_flag=True, help="Show numbers also if the sides are not comparable.")
@_OBJECTIVE
@_ZONE
@_with(_MARK)
def compare(  # noqa: PLR0913, PLR0917 - Each option is a parameter.
    sides: tuple[str, ...],
    baseline: str | None,
    output: str | None,
    form: ComparisonFormat | None,
    rules: tuple[str, ...],
    force: bool,  # noqa: FBT001 - An option.
    objective: str | None,
    zone: str | None,
    **marks: Any,  # noqa: ANN401 - What `marking` takes.
) -> None:
    """
    Compare configurations by their load tests: what is different, and whether it is real.

    Each side is a source, as of report, or several with a name: A=run1.json,run2.json. One run of a configuration says
    little, for the next one is different; five runs of each, taking turns, find a difference of a few per cent.

    --fail-if fails only if the whole 95 % interval is beyond the limit, and never if nothing was measured.
    """
    from vllm_watch.commands.compare import check_rules, named_sides, read_sides, write_comparison
    from vllm_watch.commands.marks import mark_runs, marking
    from vllm_watch.commands.report import read_options
    from vllm_watch.comparison.compare import compare_sides
    from vllm_watch.comparison.fail_if import parse_rule

    where = marking(**marks)
    parsed = [parse_rule(text) for text in rules]
    named = named_sides(sides, baseline)
    options = read_options(objective, zone)
    with _progress("compare") as progress:
        read = read_sides(named, options, progress)
    found = compare_sides(read, baseline, force=force)
    write_comparison(found, form, output)
    mark_runs((run for side in read for run in side.runs), output, where)
    outcomes = check_rules(parsed, found)
    for outcome in outcomes:
        click.echo(f"vllm-watch: {outcome.text}", err=True)
    sys.exit(1 if any(outcome.has_failed for outcome in outcomes) else 0)


@cli.command()
@_CONFIG
@_LOG
@_METRICS
@click.option("--server", "names", multiple=True, metavar="NAME", help="Record only this; may be repeated.")
@click.option("-o", "--output", required=True, metavar="FILE", help="Where to write, such as test.jsonl.xz.")
@click.option("--force", is_flag=True, help="Write over a FILE that is there.")
@click.option("--every", metavar="DURATION", help="Time between two scrapes [default: as configured, else 5s].")
@click.option("--for", "duration", metavar="DURATION", help="How long to record [default: until Ctrl-C].")
@click.option("--keep", metavar="KINDS", help="What not to remove: prompts,request-ids,keys,addresses.")
@click.argument("argv", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
def record(  # noqa: PLR0913, PLR0917 - Each option is a parameter.
    config_file: str | None,
    logs: tuple[str, ...],
    metrics: tuple[str, ...],
    names: tuple[str, ...],
    output: str,
    force: bool,  # noqa: FBT001 - An option.
    every: str | None,
    duration: str | None,
    keep: str | None,
    argv: tuple[str, ...],
) -> None:
    """
    Record the logs and /metrics of running servers into one file, from now until Ctrl-C.

    With a COMMAND after --, such as vllm bench serve, record while it runs, and its result too. Prompts, request ids,
    keys and addresses of clients are removed. Without --config, --log and --metrics: of the vLLM servers that run on
    this machine.
    """
    from vllm_watch.commands.record import RecordOptions, kinds_of
    from vllm_watch.commands.record import record as record_servers
    from vllm_watch.commands.watched import Selection
    from vllm_watch.support.logging_setup import configure_log

    configure_log("error")
    record_servers(
        Selection(config_file, logs, metrics),
        RecordOptions(
            output,
            names,
            None if every is None else _seconds("--every", every),
            None if duration is None else _seconds("--for", duration),
            kinds_of(keep or ""),
            force,
            argv,
        ),
    )


cli.add_command(grafana)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave with its exit status."""
    guard_standard_streams()
    status = _status_of(lambda: _run(arguments))
    # What is still buffered is written here: at exit the interpreter would print a traceback if that fails.
    sys.exit(_status_of(sys.stdout.flush) or status)


def _run(arguments: Sequence[str] | None) -> int | None:
    """Run the command line; return the status that click ends it with, such as after --help."""
    status: int | None = cli.main(args=arguments, prog_name="vllm-watch", standalone_mode=False)
    return status


def _status_of(action: Callable[[], int | None]) -> int:
    """Do something; print the errors that a user can correct, and return the exit status."""
    try:
        return action() or 0
    except SystemExit as ended:
        return int(ended.code or 0)
    except ReaderGoneError:
        return 0
    except VllmWatchError as error:
        from vllm_watch.support.printable import printable

        for line in str(error).split("\n"):
            click.echo(f"vllm-watch: {printable(line)}", err=True)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("Aborted!", err=True)
        return 1


def _seconds(option: str, text: str) -> float:
    from vllm_watch.config.texts import parse_duration

    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error
    if seconds <= 0:
        raise UsageError(f"{option}: expected more than 0 s")
    return seconds


@contextmanager
def _progress(label: str) -> Iterator[Callable[[float], None]]:
    """Show a bar on a terminal until the work is done; yield the function that moves it."""
    is_terminal = sys.stderr.isatty()
    with click.progressbar(length=_PARTS, label=label, file=sys.stderr, hidden=not is_terminal) as bar:

        def show(share: float) -> None:
            bar.update(max(int(share * _PARTS) - bar.pos, 0))

        yield show
    if is_terminal:
        sys.stderr.write(_ERASE_LINE_ABOVE)


if __name__ == "__main__":
    main()
