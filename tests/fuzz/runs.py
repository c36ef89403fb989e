# SPDX-License-Identifier: Apache-2.0
"""
Runs of libFuzzer over one target, each in a process of its own.

libFuzzer reads folders of inputs: the corpus has one file for each target, a line of JSON for each input, in which a
character is a byte. Inputs that were written or mended by hand have a name.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile

from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.fuzz.targets import load


HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
FINDINGS = HERE / "findings"

MAX_LENGTH = 2048
"""Bytes of an input: longer ones take longer and show little more."""

MAX_KEPT = 1200
"""Bytes of an input that is kept."""

_SLOW = 20
"""Seconds after which one input is a finding."""

_MEMORY = 2048
"""MiB after which an input is a finding."""


def read_corpus(target: str) -> dict[str, bytes]:
    """Return the inputs that are kept for a target, by name or number."""
    lines = (CORPUS / f"{target}.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return {row.get("name", f"{number:03}"): row["input"].encode("latin-1") for number, row in enumerate(rows)}


def add_to_corpus(target: str, files: Iterable[Path], *, named: bool = False) -> None:
    """Append files to the inputs that are kept for a target, with their names if these say what they are about."""
    with (CORPUS / f"{target}.jsonl").open("a") as corpus:
        for file in files:
            name = {"name": file.name} if named else {}
            corpus.write(json.dumps({**name, "input": file.read_bytes().decode("latin-1")}) + "\n")


def fuzz(
    target: str, limit: str, findings: Path, *, seed: int = 0, with_seeds: bool = False, keep: bool = False
) -> int:
    """
    Fuzz one target, from the corpus on.

    Args:
        target: Its name.
        limit: libFuzzer's option that ends the search: ``-max_total_time=SECONDS``, or ``-runs=INPUTS``.
        findings: The folder into which inputs are written that break something.
        seed: Of libFuzzer's dice; 0 is chance. With it, a number of inputs is all but the same search.
        with_seeds: Begin with what the other tests hold, too: it takes up to half a minute.
        keep: Add to the corpus what covers code that the corpus does not.

    Returns:
        libFuzzer's exit status: 0 if nothing was found.
    """
    findings.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        found, kept, seeds = (Path(folder, name) for name in ("found", "kept", "seeds"))
        _write(found, ())
        _write(kept, read_corpus(target).values())
        _write(seeds, load(target).seeds() if with_seeds else ())
        options = [
            limit,
            f"-seed={seed}",
            f"-timeout={_SLOW}",
            f"-artifact_prefix={findings}/{target}-",
            "-print_final_stats=1",
        ]
        status = _run(target, [found, kept, seeds], options)
        if keep and status == 0:
            _merge(target, kept, [found, seeds])
    return status


def _write(folder: Path, inputs: Iterable[bytes]) -> None:
    folder.mkdir()
    for number, data in enumerate(inputs):
        (folder / f"{number:05}").write_bytes(data)


def _merge(target: str, kept: Path, folders: Sequence[Path]) -> None:
    for folder in folders:
        for file in folder.iterdir():
            if file.stat().st_size > MAX_KEPT:
                file.unlink()
    # By edges alone: that one was taken more often is worth a run's memory and not a file.
    before = set(kept.iterdir())
    _run(target, [kept, *folders], ["-set_cover_merge=1", "-use_counters=0"])
    add_to_corpus(target, sorted(set(kept.iterdir()) - before))


def _run(target: str, folders: Sequence[Path], options: Sequence[str]) -> int:
    limits = [f"-max_len={MAX_LENGTH}", f"-rss_limit_mb={_MEMORY}"]
    with tempfile.TemporaryDirectory() as scratch:
        engine = [sys.executable, "-m", "tests.fuzz.engine", target]
        program = _program(engine, Path(scratch, target))
        # libFuzzer ends the process in a way that leaves files behind; and one seed is to mean one run.
        environment = {**os.environ, "TMPDIR": scratch, "PYTHONHASHSEED": "0"}
        command = [*engine, str(program), *limits, *options, *map(str, folders)]
        return subprocess.run(command, check=False, cwd=HERE.parents[1], env=environment).returncode


def _program(engine: Sequence[str], file: Path) -> Path:
    """Write a program for libFuzzer, which starts itself again by its own name to merge."""
    file.write_text(f'#!/bin/sh\nexec {shlex.join([*engine, str(file)])} "$@"\n')
    file.chmod(0o700)
    return file
