# SPDX-License-Identifier: Apache-2.0
"""
/metrics of other programs, recognized by their names.

Routers have vLLM's names too, and repeat under them the values of several engines. None of these pages is read as an
engine. Those on which Ray or KServe show vLLM's own series are read: see `front_ends`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, get_args


ForeignProgram = Literal[
    "ray", "router", "llm_d", "dynamo", "litellm", "sglang", "text_generation_inference", "tensorrt_llm", "triton",
    "llama_cpp", "ollama", "lmcache", "other_program",
]  # fmt: skip
FOREIGN_PROGRAMS: tuple[ForeignProgram, ...] = get_args(ForeignProgram)

_PREFIXES: tuple[tuple[ForeignProgram, tuple[str, ...]], ...] = (
    ("sglang", ("sglang:", "sglang_", "ray_sglang")),
    ("ray", ("ray_",)),
    ("text_generation_inference", ("tgi_",)),
    ("tensorrt_llm", ("trtllm_", "trtllm:")),
    ("llm_d", ("inference_extension_", "inference_model_", "inference_objective_", "inference_pool_", "llm_d_")),
    ("dynamo", ("dynamo_",)),
    ("litellm", ("litellm_",)),
    ("router", ("router_", "sgl_router_", "smg_", "vllm_router_")),
    ("triton", ("nv_inference_",)),
    ("llama_cpp", ("llamacpp:",)),
    ("ollama", ("ollama_",)),
    ("lmcache", ("lmcache:", "lmcache_mp_", "lmcache_mp:")),
    ("other_program", ("node_", "vllm_watch_")),
)
_OF_ROUTERS = frozenset({"vllm:current_qps", "vllm:healthy_pods_total", "vllm:num_incoming_requests_total"})
_Labels = tuple[tuple[str, str], ...]


def foreign_program(foreign_names: Collection[str], series: Mapping[str, Collection[_Labels]]) -> ForeignProgram | None:
    """
    Return whose /metrics it is, `None` for vLLM's and for that of an unknown program.

    Args:
        foreign_names: Names that are not read.
        series: The label sets of those that are, by name.
    """
    own = [labels for name, sets in series.items() if name.startswith("vllm:") for labels in sets]
    if own:
        return "router" if _is_router(foreign_names, own) else None
    for kind, prefixes in _PREFIXES:
        if any(name.startswith(prefixes) for name in (*foreign_names, *series)):
            return kind
    return "router" if not _OF_ROUTERS.isdisjoint(foreign_names) else None


def _is_router(foreign_names: Collection[str], own: Collection[_Labels]) -> bool:
    """Return whether vLLM's names are a router's: it labels them with an engine's address, and never with a model."""
    if not _OF_ROUTERS.isdisjoint(foreign_names):
        return True
    names = {name for labels in own for name, _ in labels}
    return "server" in names and "model_name" not in names
