# SPDX-License-Identifier: Apache-2.0
"""Writes the samples of all servers for one scrape of the daemon; a server that fails hides no other."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

from vllm_watch.daemon.exposition.gpu_samples import gpu_parts
from vllm_watch.daemon.exposition.line_starts import configured_labels
from vllm_watch.daemon.exposition.sample_values import PlainSample
from vllm_watch.daemon.exposition.samples import sample_parts
from vllm_watch.daemon.exposition.text_format import SampleWriter, SeriesTexts
from vllm_watch.daemon.state.snapshot import ServerSnapshot


_Kept = dict[tuple[object, ...], tuple[object, SeriesTexts]]
"""By the name of a part of the samples: what it depends on, and how it is written."""


class TextCollector:
    """Writes samples again and again, from one thread at a time; what the next texts have in common is kept."""

    def __init__(self) -> None:
        self._writer = SampleWriter()
        self._kept: dict[str, _Kept] = {}
        """What was written of each server: most of it is the same in the next texts."""

    def texts(
        self,
        snapshots: Iterable[ServerSnapshot],
        own_samples: Callable[[], Iterable[PlainSample]],
        *,
        failed: Callable[[str, Exception], None],
    ) -> list[SeriesTexts]:
        """
        Return the samples of all servers and of the daemon, as they are written.

        Args:
            snapshots: The servers.
            own_samples: Returns the daemon's own samples; called last, so that they count what has failed just now.
            failed: Is called with the name of a server whose snapshot cannot be exported, and the error.
        """
        servers = list(snapshots)
        configured = configured_labels({server.name: server.labels for server in servers})
        if configured != self._writer.configured:
            self._writer, self._kept = SampleWriter(configured), {}
        self._kept = {server.name: self._kept.get(server.name, {}) for server in servers}
        texts: list[SeriesTexts] = []
        gpus: set[str] = set()
        for server in servers:
            try:
                texts += self._texts_of(server, gpus)
            except Exception as error:  # noqa: BLE001 - One server must not hide the others; `failed` logs the error.
                failed(server.name, error)
                continue
            gpus.update([each.gpu for each in server.gpus if each.reading is not None])
        return [*texts, self._writer.write(own_samples())]

    def _texts_of(self, server: ServerSnapshot, gpus: Container[str]) -> list[SeriesTexts]:
        """Return how a server's samples are written, with those of its GPUs but for these."""
        before, write = self._kept[server.name], self._writer.write
        kept: _Kept = {}
        for name, depends_on, samples in (*sample_parts(server), *gpu_parts(server, gpus)):
            known = before.get(name)
            if known is None or known[0] != depends_on:
                known = depends_on, write(samples())
            kept[name] = known
        self._kept[server.name] = kept
        return [text for _, text in kept.values()]
