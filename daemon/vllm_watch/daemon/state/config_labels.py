# SPDX-License-Identifier: Apache-2.0
"""
The flags that are labels of `server_config_info`, and their values.

A value comes from the log, /metrics or a command line, so what is not spelt as vLLM spells its choices is no label.
"""

from __future__ import annotations

import re

from collections.abc import Mapping

from vllm_watch.daemon.catalog.codes import CONFIG_LABELS


_VALUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}\Z", re.ASCII)
_SWITCHED = {"True": "true", "False": "false"}
_SPELT = {label: value for value, label in _SWITCHED.items()}
_NO_DRAFTS, _NO_CHOICE = "none", "auto"
_NO_FLAGS = (_NO_DRAFTS, _NO_CHOICE)
_SPEC_METHOD = "spec_method"
_KV_CACHE_DTYPE = "kv_cache_dtype"
_V0_DRAFT_MODEL = "speculative-model"
_V0_NGRAM = "[ngram]"


def config_labels(flags: Mapping[str, str], *, is_resolved: bool) -> Mapping[str, str]:
    """
    Return the labels' values in the order of the labels; one is empty where it is not known.

    Args:
        flags: The flags that are known.
        is_resolved: Whether what vLLM made of all its flags is known.
    """
    found = {
        label: next((flags[name] for name in names if name in flags), "") for label, names in CONFIG_LABELS.items()
    }
    found[_SPEC_METHOD] = found[_SPEC_METHOD] or _spec_method(flags, is_resolved=is_resolved)
    if is_resolved:  # Every release prints the type, and no flag is that without a choice.
        found[_KV_CACHE_DTYPE] = found[_KV_CACHE_DTYPE] or _NO_CHOICE
    return {label: _SWITCHED.get(value, value) if _VALUE.match(value) else "" for label, value in found.items()}


def flags_of_labels(labels: Mapping[str, str]) -> Mapping[str, str]:
    """Return the flags that the labels of a `server_config_info` have, by name; of several for one label the first."""
    known = {flags[0]: labels.get(label, "") for label, flags in CONFIG_LABELS.items()}
    return {flag: _SPELT.get(value, value) for flag, value in known.items() if value and value not in _NO_FLAGS}


def are_all_known(labels: Mapping[str, str]) -> bool:
    """Return whether it shows in the labels that what vLLM made of all flags was known."""
    return labels.get(_KV_CACHE_DTYPE) == _NO_CHOICE


def _spec_method(flags: Mapping[str, str], *, is_resolved: bool) -> str:
    """Return how tokens are drafted where the method is not among the flags: before 0.8, or not at all."""
    draft = flags.get(_V0_DRAFT_MODEL)
    if draft is not None:
        return "ngram" if draft == _V0_NGRAM else "draft_model"
    return _NO_DRAFTS if is_resolved and not any("speculative" in flag for flag in flags) else ""
