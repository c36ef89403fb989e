# SPDX-License-Identifier: Apache-2.0
"""The series that are flags of a server whose values are numbers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType


FLAGS_OF_FACTS: Mapping[str, str] = MappingProxyType(
    {
        "max_model_len_tokens": "max-model-len",
        "max_running_requests": "max-num-seqs",
        "max_batched_tokens": "max-num-batched-tokens",
        "gpu_memory_utilization_ratio": "gpu-memory-utilization",
        "block_size_tokens": "block-size",
        "tensor_parallel_size": "tensor-parallel-size",
        "pipeline_parallel_size": "pipeline-parallel-size",
        "data_parallel_size": "data-parallel-size",
        "num_speculative_tokens": "speculative-config.num_speculative_tokens",
    }
)
"""By series, without its prefix; the last one is a part of the flag ``speculative-config``."""
