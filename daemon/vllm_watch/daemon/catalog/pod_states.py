# SPDX-License-Identifier: Apache-2.0
"""What becomes of a pod that the Kubernetes API lists: the values of `kubernetes_pods`' label, and what each means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal


PodState = Literal["watched", "starting", "pending", "ended", "no_port", "over_limit"]

POD_STATES: Mapping[PodState, str] = {
    "watched": "It is watched.",
    "starting": "It has not been ready yet; it is watched from then on.",
    "pending": "It has no address yet.",
    "ended": "It has finished, failed, or should have been gone by now.",
    "no_port": "No container of it has a port of the configured name.",
    "over_limit": "As many pods as one vllm-watch watches are watched already.",
}
