# SPDX-License-Identifier: Apache-2.0
"""All rules, and which causes explain others."""

from __future__ import annotations

from collections.abc import Mapping

from vllm_watch.analysis.advice import batch_rules, budget_rules, draft_rules, kv_cache_rules, start_rules
from vllm_watch.analysis.advice.model import Cause
from vllm_watch.analysis.advice.rule import Rule


RULES: tuple[Rule, ...] = (
    kv_cache_rules.OVERRIDE,
    kv_cache_rules.SHARE,
    kv_cache_rules.FP8,
    batch_rules.FEWER,
    batch_rules.LESS_AT_ONCE,
    batch_rules.MORE,
    budget_rules.LARGER,
    budget_rules.SMALLER,
    draft_rules.FEWER,
    draft_rules.MORE,
    start_rules.NO_EAGER,
    start_rules.PREFIX_CACHING,
)
"""The most important first. Of the rules for one cause the first that has its evidence counts."""

_JUDGED_AT_A_BATCH = frozenset[Cause]({"prompts_in_steps", "drafts", "eager_steps"})
"""Causes that depend on how many requests run at once: they look different after that has changed."""

EXPLAINS: Mapping[Cause, frozenset[Cause]] = {
    "kv_cache_full": _JUDGED_AT_A_BATCH | {"batch_full"},
    "batch_full": _JUDGED_AT_A_BATCH,
}
"""Causes that are nearer to what is seen than others: while one is there, the others are not judged."""

SHOWN: Mapping[Cause, str] = {
    "kv_cache_full": "the KV cache is full",
    "batch_full": "the batch is full",
    "prompts_in_steps": "prompts and steps do not fit each other",
    "drafts": "draft tokens",
    "eager_steps": "eager mode",
    "prompts_computed_again": "prompts are computed again",
}
"""The causes in words."""
