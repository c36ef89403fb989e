# SPDX-License-Identifier: Apache-2.0
"""The labels of `server_config_info` between the server's and the digest, and the flags whose values they have."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType


CONFIG_LABELS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "dtype": ("dtype",),
        "quantization": ("quantization",),
        "kv_cache_dtype": ("kv-cache-dtype",),
        "prefix_caching": ("enable-prefix-caching",),
        "chunked_prefill": ("enable-chunked-prefill",),
        "enforce_eager": ("enforce-eager",),
        "spec_method": ("speculative-config.method",),
        "attention_backend": ("attention-backend",),
        "compile_mode": ("compilation-config.mode", "compilation-config.level"),
        "cudagraph_mode": ("compilation-config.cudagraph_mode",),
        "expert_parallel": ("enable-expert-parallel",),
        "kv_connector": ("kv-transfer-config.kv_connector",),
        "kv_role": ("kv-transfer-config.kv_role",),
        "device": ("device",),
    }
)
"""By label; of several flags the first that is known is taken."""
