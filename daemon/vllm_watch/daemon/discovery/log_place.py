# SPDX-License-Identifier: Apache-2.0
"""Where a server's log is kept: the targets of its standard output and error, and what is wrong with them."""

from __future__ import annotations

import os

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from vllm_watch.daemon.discovery.open_files import OpenFiles, Output
from vllm_watch.daemon.discovery.proc import Environment, Owner
from vllm_watch.daemon.discovery.processes import Process, is_readable
from vllm_watch.daemon.sources.rotation import log_name
from vllm_watch.daemon.support.printable import ReportLine


MAX_PIPES = 4
"""How many programs of a pipeline are followed."""

_CONTAINER_LOGS = (
    ("var/lib/docker/containers", "{id}/{id}-json.log"),
    ("var/log/containers", "*-{id}.log"),
    ("var/lib/containers/storage/overlay-containers", "{id}/userdata/ctr.log"),
)
"""Where Docker, Kubernetes' runtimes and Podman keep the logs of containers."""

START_APPENDING = "start it with >> vllm.log 2>&1, or as a systemd unit."


class LogPlace(NamedTuple):
    """
    A file, a unit of the journal, or neither; and findings about it.

    `lasting_log` is the path that the file had when the server was started, as far as that is known: a later start
    writes there again.
    """

    log: str | None = None
    journal: str | None = None
    findings: tuple[ReportLine, ...] = ()
    lasting_log: str | None = None


class ProcessView(NamedTuple):
    """What is known about a server before its log is found. `me` is the user that this process runs as."""

    open_files: OpenFiles
    processes: Sequence[Process]
    pid: int
    user: str
    me: str
    owner: Owner
    environment: Environment | None
    host: Path


def log_place(view: ProcessView) -> LogPlace:
    """Return where a server's log is kept: its standard output, or its standard error if only that is kept."""
    out, err = view.open_files.output(view.pid, 1), view.open_files.output(view.pid, 2)
    place = _PLACES[out.kind](view, out)
    if _is_same(out, err) or out.kind == "denied":
        return place
    if place.log is None and place.journal is None:
        other = _PLACES[err.kind](view, err)
        if other.log is not None or other.journal is not None:
            only = ReportLine(
                "Only its standard error is kept; standard output, where vLLM prints its log, goes to "
                f"{_name_of(out)}: {START_APPENDING}",
                is_wrong=True,
            )
            return other._replace(findings=(only, *other.findings))
        return place
    lost = ReportLine(
        f"Its standard error goes elsewhere, to {_name_of(err)}: what uvicorn and crashing libraries print is missing "
        "from the log. Start it with 2>&1.",
        is_wrong=True,
    )
    return place._replace(findings=(*place.findings, lost))


def _is_same(out: Output, err: Output) -> bool:
    return (out.kind, out.path, out.inode) == (err.kind, err.path, err.inode)


def _file(view: ProcessView, output: Output) -> LogPlace:
    """Return a file as the log, or why it cannot be."""
    path = output.path
    if output.is_deleted:
        text = f"It writes to a file that has been deleted, {path}: only what follows it already can read it. Start it "
        text += "again; to rotate its log use copytruncate, because vLLM never opens a new file."
        deleted = LogPlace(findings=(ReportLine(text, is_wrong=True),))
        # A daemon that has read the path still has the file open.
        return deleted if output.is_inside_container else deleted._replace(log=path, lasting_log=_started_with(path))
    if output.access == "denied":
        return _nowhere(
            f"{view.me} may not read its log {path} ({output.holders}): {_remedy(view, output)}, and allow access to "
            "its folders."
        )
    if output.access == "elsewhere":
        return _nowhere(
            f"Its log {path} is in a container or mount that cannot be reached from here: mount a folder of the host "
            "there, and give that with --log."
        )
    lasting = None if output.is_inside_container else _started_with(path)
    return LogPlace(log=path, findings=tuple(_flaws(output)), lasting_log=lasting)


def _started_with(path: str) -> str:
    """Return the path that a file had before rotation renamed it; a date may have been in its name from the start."""
    name = log_name(path)
    return name if name.endswith(".log") or Path(name).is_file() else path


def _flaws(output: Output) -> list[ReportLine]:
    flaws = []
    if not output.is_appending:
        text = "Its log was opened with >, so rotation by copytruncate leaves a hole of NUL bytes and the file never "
        flaws.append(ReportLine(text + "gets smaller: start it with >> instead of > (tee: with -a).", is_wrong=True))
    if not output.is_inside_container and _started_with(output.path) != output.path:
        text = "Its log has been renamed while it was open, and vLLM continues to write to the old file: rotate with "
        flaws.append(ReportLine(text + "copytruncate.", is_wrong=True))
    if output.is_inside_container:
        text = "Its log is inside its container and can be found only while this process runs: mount a folder of "
        flaws.append(ReportLine(text + "the host there."))
    return flaws


def _remedy(view: ProcessView, output: Output) -> str:
    """Return what makes a file readable; never membership of root's group."""
    acl = f"set an ACL (setfacl -m u:{view.me}:r {output.path})"
    return acl if output.group in {"root", ""} else f"add {view.me} to the group {output.group} or {acl}"


def _pipe(view: ProcessView, output: Output) -> LogPlace:
    """Return the file at the end of a pipeline, or a container's log."""
    reader = view.open_files.reader_of(output.inode, view.processes)
    for _ in range(MAX_PIPES):
        if reader is None:
            break
        files = view.open_files.files_written(reader.pid)
        if files:
            return _file(view, files[0])
        onward = view.open_files.output(reader.pid, 1)
        next_reader = view.open_files.reader_of(onward.inode, view.processes) if onward.kind == "pipe" else None
        if next_reader is None:
            return _nowhere(
                f"Its output goes into a pipe to {reader.name} (process {reader.pid}), which does not write it to a "
                f"file: put tee -a vllm.log in between, or {START_APPENDING}"
            )
        reader = next_reader
    if view.owner.container is not None:
        return _container_log(view, view.owner.container)
    return _nowhere(
        "Its output goes into a pipe whose reader cannot be seen: if that is a container's runtime, read the log on "
        f"the host (docker logs, kubectl logs); else {START_APPENDING}"
    )


def _container_log(view: ProcessView, container: str) -> LogPlace:
    """Return the file in which a container's runtime keeps its output."""
    short = container[:12]
    is_closed = False
    for folder, pattern in _CONTAINER_LOGS:
        try:
            is_closed = is_closed or _is_closed(view.host / folder)
            paths = sorted((view.host / folder).glob(pattern.format(id=container)))
        except PermissionError:
            is_closed = True
            continue
        readable = [path for path in paths if is_readable(str(path))]
        if readable:
            return LogPlace(log=str(readable[0]), lasting_log=str(readable[0]))
        is_closed = is_closed or bool(paths)
    if is_closed:
        return _nowhere(f"{view.me} may not read the log of its container {short}: run vllm-watch as root.")
    return _nowhere(f"The log of its container {short} is not in a file: start it with the logging driver json-file.")


def _is_closed(folder: Path) -> bool:
    """Whether a folder exists and may not be listed."""
    try:
        os.scandir(folder).close()
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _socket(view: ProcessView, output: Output) -> LogPlace:
    """Return the journal of a server's unit: systemd connects a unit's output to it by a socket."""
    if view.owner.container is not None:
        return _container_log(view, view.owner.container)
    environment, unit = view.environment, view.owner.unit
    if environment is not None and environment.journal_inode != output.inode and environment.journal_inode:
        return _nowhere(f"Its output goes to a socket, and not to the journal: {START_APPENDING}")
    if unit is None:
        return _nowhere(f"Its output goes to a socket that belongs to no known unit: {START_APPENDING}")
    if view.owner.is_user_unit:
        return _nowhere(
            f"Its output is in the journal of a user, unit {unit}; vllm-watch reads the system's. Make it a unit of "
            "the system, or set StandardOutput=append:/path/vllm.log in it."
        )
    return LogPlace(journal=unit)


def _kept_nowhere(_view: ProcessView, output: Output) -> LogPlace:
    what = {
        "terminal": f"Its output goes to a terminal ({output.path}) and is kept nowhere",
        "null": "Its output is discarded (/dev/null)",
        "closed": "Its standard output is closed",
        "other": f"Its output goes to {output.path}, which is not a file",
    }
    return _nowhere(f"{what[output.kind]}: {START_APPENDING}")


def _denied(view: ProcessView, _output: Output) -> LogPlace:
    unit = view.owner.unit
    who = "root" if view.user == "root" else f"{view.user} or root"
    at_unit = f" (its unit is {unit}: perhaps log: {{journal: {unit}}})" if unit and unit.endswith(".service") else ""
    return _nowhere(
        f"Its log cannot be found: it runs as {view.user}, and vllm-watch as {view.me}. Run vllm-watch as "
        f"{who}, give it the capabilities CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH, or name the log with --log{at_unit}."
    )


def _nowhere(text: str) -> LogPlace:
    return LogPlace(findings=(ReportLine(text, is_wrong=True),))


def _name_of(output: Output) -> str:
    words = {"null": "/dev/null", "pipe": "a pipe", "socket": "a socket", "closed": "nowhere"}
    return words.get(output.kind) or output.path or "another place"


_PLACES: dict[str, Callable[[ProcessView, Output], LogPlace]] = {
    "closed": _kept_nowhere,
    "denied": _denied,
    "file": _file,
    "null": _kept_nowhere,
    "other": _kept_nowhere,
    "pipe": _pipe,
    "socket": _socket,
    "terminal": _kept_nowhere,
}
