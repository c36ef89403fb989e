# SPDX-License-Identifier: Apache-2.0
"""Where a server's log is kept: what is behind its standard output and error, and what is wrong with that."""

from __future__ import annotations

import os
import re

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from vllm_watch.discovery.cgroup import Owner
from vllm_watch.discovery.proc import Environment, Output, Proc, Process, is_readable
from vllm_watch.support.report import ReportLine


MAX_PIPES = 4
"""So many programs are followed that stand one behind the other in a pipe."""

_ROTATED = re.compile(r"\.[0-9]{1,3}\Z|-20[0-9]{6}\Z")

_CONTAINER_LOGS = (
    ("var/lib/docker/containers", "{id}/{id}-json.log"),
    ("var/log/containers", "*-{id}.log"),
    ("var/lib/containers/storage/overlay-containers", "{id}/userdata/ctr.log"),
)
"""Where Docker, Kubernetes' runtimes and Podman keep what a container prints."""

START_APPENDING = "start it with >> vllm.log 2>&1, or as a systemd unit."


class LogPlace(NamedTuple):
    """A file, or a unit of the journal, or neither; and what there is to say of it."""

    log: str | None = None
    journal: str | None = None
    findings: tuple[ReportLine, ...] = ()


class ProcessView(NamedTuple):
    """What can be seen of a server, for finding its log. `me` is the user who looks."""

    proc: Proc
    processes: Sequence[Process]
    pid: int
    user: str
    me: str
    owner: Owner
    environment: Environment | None
    host: Path


def log_place(sight: ProcessView) -> LogPlace:
    """Return where a server's log is kept: behind standard output, or behind standard error if only that is kept."""
    out, err = sight.proc.output(sight.pid, 1), sight.proc.output(sight.pid, 2)
    place = _PLACES[out.kind](sight, out)
    if _is_same(out, err) or out.kind == "denied":
        return place
    if place.log is None and place.journal is None:
        other = _PLACES[err.kind](sight, err)
        if other.log is not None or other.journal is not None:
            only = ReportLine(
                f"Only its standard error is kept; standard output, where vLLM prints its log, goes to {_word(out)}: "
                f"{START_APPENDING}",
                is_wrong=True,
            )
            return other._replace(findings=(only, *other.findings))
        return place
    lost = ReportLine(
        f"Its standard error goes elsewhere, to {_word(err)}: what uvicorn and crashing libraries print is missing "
        "from the log. Start it with 2>&1.",
        is_wrong=True,
    )
    return place._replace(findings=(*place.findings, lost))


def _is_same(out: Output, err: Output) -> bool:
    return (out.kind, out.path, out.inode) == (err.kind, err.path, err.inode)


def _file(sight: ProcessView, output: Output) -> LogPlace:
    path = output.path
    if output.is_deleted:
        return _nowhere(
            f"It writes to a file that has been deleted, {path}: nobody can read that any more. Start it again; to "
            "rotate its log use copytruncate, for vLLM never opens a new file."
        )
    if output.access == "denied":
        return _nowhere(
            f"Its log {path} may not be read by {sight.me} ({output.holders}): {_remedy(sight, output)}, and let its "
            "folders be entered."
        )
    if output.access == "elsewhere":
        return _nowhere(
            f"Its log {path} is in a container or mount that cannot be reached from here: mount a folder of the host "
            "there, and give that with --log."
        )
    return LogPlace(log=path, findings=tuple(_flaws(output)))


def _flaws(output: Output) -> list[ReportLine]:
    flaws = []
    if not output.is_appending:
        text = "Its log was opened with >, so rotation by copytruncate leaves a hole of NUL bytes and the file never "
        flaws.append(ReportLine(text + "gets smaller: start it with >> instead of > (tee: with -a).", is_wrong=True))
    if _ROTATED.search(output.path):
        text = "Its log has been renamed while it was open, and vLLM goes on writing to the old file: rotate with "
        flaws.append(ReportLine(text + "copytruncate.", is_wrong=True))
    if output.is_inside_container:
        text = "Its log is inside its container and found only for as long as this process lives: mount a folder of "
        flaws.append(ReportLine(text + "the host there."))
    return flaws


def _remedy(sight: ProcessView, output: Output) -> str:
    """Return what lets a file be read: nobody is to be put into root's group."""
    acl = f"set an ACL (setfacl -m u:{sight.me}:r {output.path})"
    return acl if output.group in {"root", ""} else f"add {sight.me} to the group {output.group} or {acl}"


def _pipe(sight: ProcessView, output: Output) -> LogPlace:
    reader = sight.proc.reader_of(output.inode, sight.processes)
    for _ in range(MAX_PIPES):
        if reader is None:
            break
        files = sight.proc.files_written(reader.pid)
        if files:
            return _file(sight, files[0])
        onward = sight.proc.output(reader.pid, 1)
        following = sight.proc.reader_of(onward.inode, sight.processes) if onward.kind == "pipe" else None
        if following is None:
            return _nowhere(
                f"Its output goes into a pipe to {reader.name} (process {reader.pid}), which keeps it in no file: put "
                f"tee -a vllm.log in between, or {START_APPENDING}"
            )
        reader = following
    if sight.owner.container is not None:
        return _container_log(sight, sight.owner.container)
    return _nowhere(
        "Its output goes into a pipe whose reader cannot be seen: if that is a container's runtime, read the log on "
        f"the host (docker logs, kubectl logs); else {START_APPENDING}"
    )


def _container_log(sight: ProcessView, container: str) -> LogPlace:
    short = container[:12]
    is_closed = False
    for folder, pattern in _CONTAINER_LOGS:
        try:
            is_closed = is_closed or _is_closed(sight.host / folder)
            paths = sorted((sight.host / folder).glob(pattern.format(id=container)))
        except PermissionError:
            is_closed = True
            continue
        readable = [path for path in paths if is_readable(str(path))]
        if readable:
            return LogPlace(log=str(readable[0]))
        is_closed = is_closed or bool(paths)
    if is_closed:
        return _nowhere(f"The log of its container {short} may not be read by {sight.me}: run vllm-watch as root.")
    return _nowhere(f"The log of its container {short} is in no file: start it with the logging driver json-file.")


def _is_closed(folder: Path) -> bool:
    """Whether a folder is there, and may not be looked into."""
    try:
        os.scandir(folder).close()
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def _socket(sight: ProcessView, output: Output) -> LogPlace:
    """Return the journal of the unit, which is what systemd connects a unit's output to."""
    if sight.owner.container is not None:
        return _container_log(sight, sight.owner.container)
    environment, unit = sight.environment, sight.owner.unit
    if environment is not None and environment.journal_inode != output.inode and environment.journal_inode:
        return _nowhere(f"Its output goes to a socket that is not the journal's: {START_APPENDING}")
    if unit is None:
        return _nowhere(f"Its output goes to a socket, and no unit says whose: {START_APPENDING}")
    if sight.owner.is_user_unit:
        return _nowhere(
            f"Its output is in a user's own journal, unit {unit}: vllm-watch reads the system's. Make it a unit of the "
            "system, or set StandardOutput=append:/path/vllm.log in it."
        )
    return LogPlace(journal=unit)


def _terminal(_sight: ProcessView, output: Output) -> LogPlace:
    return _nowhere(f"Its output goes to a terminal ({output.path}) and is kept nowhere: {START_APPENDING}")


def _null(_sight: ProcessView, _output: Output) -> LogPlace:
    return _nowhere(f"Its output is thrown away (/dev/null): {START_APPENDING}")


def _closed(_sight: ProcessView, _output: Output) -> LogPlace:
    return _nowhere(f"Its standard output is closed: {START_APPENDING}")


def _other(_sight: ProcessView, output: Output) -> LogPlace:
    return _nowhere(f"Its output goes to {output.path}, which is no file: {START_APPENDING}")


def _denied(sight: ProcessView, _output: Output) -> LogPlace:
    unit = sight.owner.unit
    who = "root" if sight.user == "root" else f"{sight.user} or root"
    at_unit = f" (its unit is {unit}: perhaps log: {{journal: {unit}}})" if unit and unit.endswith(".service") else ""
    return _nowhere(
        f"Where its log goes cannot be seen: it runs as {sight.user}, and vllm-watch as {sight.me}. Run vllm-watch as "
        f"{who}, give it the capabilities CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH, or name the log with --log{at_unit}."
    )


def _nowhere(text: str) -> LogPlace:
    return LogPlace(findings=(ReportLine(text, is_wrong=True),))


def _word(output: Output) -> str:
    words = {"null": "/dev/null", "pipe": "a pipe", "socket": "a socket", "closed": "nowhere"}
    return words.get(output.kind) or output.path or "another place"


_PLACES: dict[str, Callable[[ProcessView, Output], LogPlace]] = {
    "closed": _closed,
    "denied": _denied,
    "file": _file,
    "null": _null,
    "other": _other,
    "pipe": _pipe,
    "socket": _socket,
    "terminal": _terminal,
}
