# SPDX-License-Identifier: Apache-2.0
"""The files of one log: what rotation has made of it, compressed or not, belongs to it."""

from __future__ import annotations

import os

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from vllm_watch.daemon.sources.rotated_names import GZIP, former_files, log_name


def find_logs(paths: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """
    Return the logs that some files are parts of, by name, each with its files.

    A log whose own file is among the paths has its rotated files, too; of one without it only those that are given.
    """
    given: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        given[log_name(path)].append(path)
    return {name: _files(name, files) for name, files in given.items()}


def _files(name: str, given: Sequence[str]) -> tuple[str, ...]:
    found = [*(former_files(name) if name in given else ()), *given]
    by_file = {os.path.realpath(path): path for path in found}
    return tuple(path for path in by_file.values() if not _has_plain_twin(path, by_file))


def _has_plain_twin(path: str, files: dict[str, str]) -> bool:
    """Return whether a compressed file is there uncompressed, too: it is being rotated."""
    return path.endswith(GZIP) and os.path.realpath(path.removesuffix(GZIP)) in files and Path(path[:-3]).exists()
