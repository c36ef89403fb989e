# SPDX-License-Identifier: Apache-2.0
"""Why pods cannot be listed, for those who do not have the library that lists them."""

from __future__ import annotations

from vllm_watch.daemon.catalog.reasons import KubernetesReason


class PodsError(Exception):
    """
    The pods cannot be listed.

    Args:
        reason: Why, from a closed list.
        said: What Kubernetes or the library says about it, for the daemon's log and `check`; empty if nothing.
    """

    def __init__(self, reason: KubernetesReason, said: str = "") -> None:
        super().__init__(reason)
        self.reason: KubernetesReason = reason
        self.said = said
