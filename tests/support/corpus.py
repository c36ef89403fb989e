# SPDX-License-Identifier: Apache-2.0
"""The bodies of /metrics in the corpus, by release: one archive for each."""

from __future__ import annotations

import tarfile

from collections.abc import Mapping
from functools import cache
from pathlib import Path


CORPUS = Path(__file__).parents[1] / "corpus"


@cache
def bodies(release: str) -> Mapping[str, bytes]:
    """Return the bodies of a release, or of ``kv_connectors``, by their names, such as ``metrics_0.txt``."""
    with tarfile.open(CORPUS / release / "bodies.tar.xz") as archive:
        return {name: archive.extractfile(name).read() for name in archive.getnames()}  # type: ignore[union-attr]


def all_bodies() -> list[tuple[str, bytes]]:
    """Return all bodies, each with its release."""
    folders = sorted(path.parent.name for path in CORPUS.glob("*/bodies.tar.xz"))
    return [(folder, body) for folder in folders for body in bodies(folder).values()]
