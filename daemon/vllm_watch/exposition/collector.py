# SPDX-License-Identifier: Apache-2.0
"""Collects the samples of all servers for one scrape of the daemon; a server that fails hides no other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from vllm_watch.catalog.series import SERIES
from vllm_watch.exposition.samples import AnySample, PlainSample, server_samples
from vllm_watch.state.snapshot import ServerSnapshot


class Collected(NamedTuple):
    """The samples of one moment; `labels` holds the configured labels of each server by its name."""

    samples: list[AnySample]
    labels: Mapping[str, Mapping[str, str]] = {}


class SnapshotCollector:
    """
    Collects the current samples.

    Args:
        snapshots: Takes the snapshots of all servers; each is taken by itself, so that one that fails hides no other.
        own_samples: Returns the daemon's own samples.
        failed: Is called with the name of a server whose snapshot cannot be exported, and the error.
    """

    def __init__(
        self,
        snapshots: Callable[[], Iterable[ServerSnapshot]],
        own_samples: Callable[[], Iterable[PlainSample]],
        *,
        failed: Callable[[str, Exception], None] = lambda _name, _error: None,
    ) -> None:
        self._snapshots = snapshots
        self._own_samples = own_samples
        self._failed = failed

    def collect(self) -> Collected:
        """Return the samples of all servers and of the daemon."""
        samples: list[AnySample] = []
        labels: dict[str, Mapping[str, str]] = {}
        for snapshot in self._snapshots():
            samples += self._samples_of(snapshot)
            labels[snapshot.name] = snapshot.labels
        samples += self._own_samples()  # Last, so that they count what has failed just now.
        return Collected(samples, labels)

    def _samples_of(self, snapshot: ServerSnapshot) -> list[AnySample]:
        try:
            samples = list(server_samples(snapshot))
            for sample in samples:
                _check(sample)
        except Exception as error:  # noqa: BLE001 - One server must not hide the others; `failed` logs the error.
            self._failed(snapshot.name, error)
            return []
        else:
            return samples


def _check(sample: AnySample) -> None:
    """Raise `ValueError` if a sample cannot be written: better for one server now than later for all of them."""
    is_whole = len(sample.labels) == len(SERIES[sample.name].labels) and all(
        type(text) is str for text in sample.labels
    )
    if not is_whole or (isinstance(sample, PlainSample) and not isinstance(sample.value, (int, float))):
        raise ValueError(f"{sample.name} has labels or a value that cannot be shown")
