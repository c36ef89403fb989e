# SPDX-License-Identifier: Apache-2.0
"""
/metrics of other programs, recognized by their names.

Some have vLLM's names: Ray's, where series of dead workers stay and each counter is there twice, and those of routers,
which repeat the values of several engines. None of them is read as an engine.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, get_args


ForeignProgram = Literal["ray", "router", "sglang", "text_generation_inference", "tensorrt_llm", "other_program"]
FOREIGN_PROGRAMS: tuple[ForeignProgram, ...] = get_args(ForeignProgram)

_PREFIXES: tuple[tuple[ForeignProgram, tuple[str, ...]], ...] = (
    ("ray", ("ray_vllm:", "ray_vllm_", "ray_sglang")),
    ("sglang", ("sglang:", "sglang_")),
    ("text_generation_inference", ("tgi_",)),
    ("tensorrt_llm", ("trtllm_", "trtllm:")),
    ("router", ("dynamo_", "inference_pool_", "inference_objective_", "litellm_", "llm_d_epp_", "router_")),
    ("other_program", ("llamacpp:", "lmcache:", "lmcache_mp_", "node_", "nv_inference_", "ollama_", "vllm_watch_")),
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
    names = [{name for name, _ in labels} for labels in own]
    return any("server" in each for each in names) and not any("model_name" in each for each in names)
