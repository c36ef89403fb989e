# SPDX-License-Identifier: Apache-2.0
"""
Pages that are not vLLM's own, told by the names on them.

Some bear vLLM's names: Ray's, where dead workers' series stay and each counter stands twice, and those of routers,
which repeat what several engines say. None of them is read as an engine.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, get_args


ForeignProgram = Literal["ray", "router", "sglang", "text_generation_inference", "tensorrt_llm", "other_program"]
FOREIGN_PROGRAMS: tuple[ForeignProgram, ...] = get_args(ForeignProgram)

_BEGINNINGS: tuple[tuple[ForeignProgram, tuple[str, ...]], ...] = (
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
    Return whose page it is, `None` for vLLM's and for those of nobody that is known.

    Args:
        foreign_names: Names on the page that are none of an engine's that are read.
        series: The label sets of those that are, by name.
    """
    own = [labels for name, sets in series.items() if name.startswith("vllm:") for labels in sets]
    if own:
        return "router" if _is_router(foreign_names, own) else None
    for kind, beginnings in _BEGINNINGS:
        if any(name.startswith(beginnings) for name in foreign_names):
            return kind
    return "router" if not _OF_ROUTERS.isdisjoint(foreign_names) else None


def _is_router(foreign_names: Collection[str], own: Collection[_Labels]) -> bool:
    """Whether vLLM's names are a router's: it labels them with the engine's address, and knows no model's name."""
    if not _OF_ROUTERS.isdisjoint(foreign_names):
        return True
    names = [{name for name, _ in labels} for labels in own]
    return any("server" in each for each in names) and not any("model_name" in each for each in names)
