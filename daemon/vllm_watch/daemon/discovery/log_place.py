# SPDX-License-Identifier: Apache-2.0
"""Where a server's log is kept: the targets of its standard output and error, and what is wrong with them."""

from __future__ import annotations

import re

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from vllm_watch.daemon.discovery.open_files import Output, files_written, output_of, reader_of
from vllm_watch.daemon.discovery.processes import Environment, Owner, Process, ProcFiles, is_readable
from vllm_watch.daemon.sources.rotation import log_name
from vllm_watch.daemon.support.printable import ReportLine


_CONTAINER_LOGS = (
    ("var/lib/docker/containers", "{id}/{id}-json.log"),
    ("var/log/containers", "*-{id}.log"),
    ("var/lib/containers/storage/overlay-containers", "{id}/userdata/ctr.log"),
)
"""Where Docker, Kubernetes' runtimes and Podman keep the logs of containers."""

START_APPENDING = "start it with >> vllm.log 2>&1, or as a systemd unit."


_INSIDE = re.compile(r"/proc/[0-9]+/root/")
"""A file that only its container has, by the path that it has here while a process of the container runs."""


class LogPlace(NamedTuple):
    """A file, a unit of the journal, or neither; and findings about it."""

    log: str | None = None
    journal: str | None = None
    findings: tuple[ReportLine, ...] = ()


class ProcessView(NamedTuple):
    """What is known about a server before its log is found. `me` is the user that this process runs as."""

    files: ProcFiles
    processes: Sequence[Process]
    pid: int
    user: str
    me: str
    owner: Owner
    environment: Environment | None
    host: Path


def log_place(view: ProcessView) -> LogPlace:
    """Return where a server's log is kept: its standard output, or its standard error if only that is kept."""
    out, err = output_of(view.files, view.pid, 1), output_of(view.files, view.pid, 2)
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
    path = output.path
    if output.is_deleted:
        text = f"It writes to a file that has been deleted, {path}: only what follows it already can read it. Start it "
        text += "again; to rotate its log use copytruncate, because vLLM never opens a new file."
        # A daemon that has read the path still has the file open.
        return LogPlace(None if output.is_inside_container else path, findings=(ReportLine(text, is_wrong=True),))
    if output.access == "denied":
        return _nowhere(
            f"{view.me} may not read its log {path}: give it a group or an ACL (setfacl -m u:{view.me}:r {path}), and "
            "allow access to its folders."
        )
    if output.access == "elsewhere":
        return _nowhere(
            f"Its log {path} is in a container or mount that cannot be reached from here: mount a folder of the host "
            "there, and give that with --log."
        )
    return LogPlace(log=path, findings=tuple(_flaws(output)))


def lasting_path(log: str | None) -> str | None:
    """Return the path that a log had before rotation renamed it, where a later start writes again, if there is one."""
    if log is None or not log.isprintable() or _INSIDE.search(log):
        return None
    name = log_name(log)
    # A date may have been in its name from the start.
    return name if name.endswith(".log") or Path(name).is_file() else log


def _flaws(output: Output) -> list[ReportLine]:
    flaws = []
    if not output.is_appending:
        text = "Its log was opened with >, so rotation by copytruncate leaves a hole of NUL bytes and the file never "
        flaws.append(ReportLine(text + "gets smaller: start it with >> instead of > (tee: with -a).", is_wrong=True))
    if not output.is_inside_container and lasting_path(output.path) not in {None, output.path}:
        text = "Its log has been renamed while it was open, and vLLM continues to write to the old file: rotate with "
        flaws.append(ReportLine(text + "copytruncate.", is_wrong=True))
    if output.is_inside_container:
        text = "Its log is inside its container and can be found only while this process runs: mount a folder of "
        flaws.append(ReportLine(text + "the host there."))
    return flaws


def _pipe(view: ProcessView, output: Output) -> LogPlace:
    """Return the file at the end of a pipeline, or a container's log."""
    reader = reader_of(view.files, output.inode, view.processes)
    if reader is not None:
        files = files_written(view.files, reader.pid)
        if files:
            return _file(view, files[0])
        return _nowhere(
            f"Its output goes into a pipe to {reader.name} (process {reader.pid}), which does not write it to a file: "
            f"put tee -a vllm.log first, or {START_APPENDING}"
        )
    if view.owner.container is not None:
        return _container_log(view, view.owner.container)
    return _nowhere(
        "Its output goes into a pipe whose reader cannot be seen: if that is a container's runtime, read the log on "
        f"the host (docker logs, kubectl logs); else {START_APPENDING}"
    )


def _container_log(view: ProcessView, container: str) -> LogPlace:
    for folder, pattern in _CONTAINER_LOGS:
        for path in sorted((view.host / folder).glob(pattern.format(id=container))):
            if is_readable(str(path)):
                return LogPlace(log=str(path))
    return _nowhere(
        f"The log of its container {container[:12]} is not in a file that {view.me} may read: run vllm-watch as root, "
        "and start the container with the logging driver json-file."
    )


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
    who = "root" if view.user == "root" else f"{view.user} or root"
    return _nowhere(
        f"Its log cannot be found: it runs as {view.user}, and vllm-watch as {view.me}. Run vllm-watch as "
        f"{who}, give it the capabilities CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH, or name the log with --log."
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
