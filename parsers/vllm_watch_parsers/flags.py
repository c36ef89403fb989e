# SPDX-License-Identifier: Apache-2.0
"""
The flags of a server that matter to how fast it is, from what it prints of its arguments and its configuration.

They are named as on the command line without the leading dashes: ``max-num-seqs``,
``speculative-config.num_speculative_tokens``. This is a closed list, for the arguments hold secrets, too.

vLLM prints its arguments as Python text. Values hold quotes, brackets and whole chat templates that quote other keys,
so keys are read only at the top level, never by a search through the text.
"""

from __future__ import annotations

import re

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple


# A string that is cut off ends with the text: to search its end again at each quote would take forever.
_TOKEN = re.compile(r"""'(?:[^'\\]|\\.)*'?|"(?:[^"\\]|\\.)*"?|[\[({<\])}>,]""")
_DICT_ITEM = re.compile(r"""\s*['"]([A-Za-z_][A-Za-z0-9_]{0,80})['"]: ?(.*)\Z""", re.DOTALL)
_KEYWORD_ITEM = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]{0,80})=(.*)\Z", re.DOTALL)
_PAIRS = {"[": "]", "(": ")", "{": "}", "<": ">"}
_CLOSING = frozenset(_PAIRS.values())


def top_level_items(text: str) -> Iterator[tuple[str, str]]:
    """
    Yield the keys and printed values of ``{'a': 1, …}``, ``{"a":1, …}``, ``Name(a=1, …)`` or ``a=1, …``.

    A text that is cut off yields the items before the cut.
    """
    body, form = _unwrap(text)
    for item in _split(body):
        found = form.match(item)
        if found:
            yield found[1], found[2].strip()


def unquote(value: str) -> str | None:
    """Return the text of a plainly printed string, or of a list of one; `None` for anything else."""
    text = value.strip()
    if text.startswith("[") and text.endswith("]"):
        text = next(iter(_split(text[1:-1])), "").strip()
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"" and "\\" not in text:
        return text[1:-1]
    return None


def _unwrap(text: str) -> tuple[str, re.Pattern[str]]:
    body = text.strip()
    if body.startswith("{"):
        return body[1:], _DICT_ITEM
    if body.startswith("Namespace("):
        return body[len("Namespace(") :], _KEYWORD_ITEM
    return body, _KEYWORD_ITEM


def _split(body: str) -> Iterator[str]:
    """Split at the commas outside of strings and brackets, until the closing bracket."""
    expected: list[str] = []
    start = 0
    for token in _TOKEN.finditer(body):
        sign = body[token.start()]
        if sign == ",":
            if not expected:
                yield body[start : token.start()]
                start = token.end()
        elif sign in _PAIRS:
            expected.append(_PAIRS[sign])
        elif sign in _CLOSING:
            if not expected:
                yield body[start : token.start()]
                return
            if sign == expected[-1]:
                expected.pop()
    yield body[start:]


Flags = tuple[tuple[str, str], ...]
"""Flags and their values as text, by name."""

_SWITCHES = frozenset(
    {
        "async_scheduling",
        "disable_custom_all_reduce",
        "disable_sliding_window",
        "enable_chunked_prefill",
        "enable_eplb",
        "enable_expert_parallel",
        "enable_lora",
        "enable_prefix_caching",
        "enforce_eager",
    }
)
"""Flags that are on or off."""

_VALUES = frozenset(
    {
        "all2all_backend",
        "api_server_count",
        "attention_backend",
        "block_size",
        "cpu_offload_gb",
        "data_parallel_size",
        "decode_context_parallel_size",
        "device",
        "distributed_executor_backend",
        "dtype",
        "generation_config",
        "gpu_memory_utilization",
        "kv_cache_dtype",
        "kv_cache_memory_bytes",
        "long_prefill_token_threshold",
        "max_long_partial_prefills",
        "max_lora_rank",
        "max_loras",
        "max_model_len",
        "max_num_active_seqs",
        "max_num_batched_tokens",
        "max_num_partial_prefills",
        "max_num_scheduled_tokens",
        "max_num_seqs",
        "num_gpu_blocks_override",
        "num_scheduler_steps",
        "optimization_level",
        "pipeline_parallel_size",
        "prefill_context_parallel_size",
        "quantization",
        "runner",
        "scheduling_policy",
        "speculative_model",
        "stream_interval",
        "swap_space",
        "tensor_parallel_size",
    }
)
_PLAIN = _SWITCHES | _VALUES
_SCHEDULE = "num_speculative_tokens_per_batch_size"
_NESTED = {
    "attention_config": frozenset({"backend"}),
    "compilation_config": frozenset({"cudagraph_mode", "level", "mode"}),
    "kv_transfer_config": frozenset({"kv_connector", "kv_role"}),
    "speculative_config": frozenset({"method", "model", "num_speculative_tokens", _SCHEDULE}),
}
"""Flags whose value has further ones in it, and those of them that matter. A connector's engine_id is random."""

_RENAMED = {
    "chunked_prefill_enabled": "enable_chunked_prefill",
    "device_config": "device",
    "max_seq_len": "max_model_len",
    "num_spec_tokens": "num_speculative_tokens",
    "cache_dtype": "kv_cache_dtype",
}
"""What the engine's configuration and /metrics call some of them."""

_SHORTCUTS = {
    "num_speculative_tokens": ("speculative_config", "num_speculative_tokens"),
    "spec_method": ("speculative_config", "method"),
    "spec_model": ("speculative_config", "model"),
    "spec_tokens": ("speculative_config", "num_speculative_tokens"),
}
"""Flags that set one of those in a dict."""

_OTHER_NAMES = {"attention-config.backend": "attention-backend"}
"""A flag that has two names."""

OPTIONS = frozenset(
    {
        *(name.replace("_", "-") for name in (*_VALUES, *_NESTED, *_SHORTCUTS)),
        *(f"{outer}.{name}".replace("_", "-") for outer, names in _NESTED.items() for name in names),
    }
)
"""The options of a command line that set flags to a value: a text, a number or JSON."""

SWITCH_OPTIONS = frozenset(name.replace("_", "-") for name in _SWITCHES)
"""The options that switch flags on; with ``no-`` before them, off."""

PARALLEL_SIZES = ("data-parallel-size", "api-server-count")
"""Flags that an engine's own configuration has wrong: an engine of a dense model knows of no other."""

DRAFT_SCHEDULE = f"speculative-config.{_SCHEDULE}"
"""
How many tokens are drafted by how many requests run, as ``1-64:3/65-128:1``.

vLLM's value is a list of (first, last, tokens), both inclusive, and ``num_speculative_tokens`` is the most there are:
vllm/config/speculative.py and vllm/v1/spec_decode/dynamic/utils.py of 0.33.0. The engine's configuration has it not; a
line says so where it is not used, and the value is ``off``.
"""

CACHE_LABELS = frozenset({"block_size", "cache_dtype", "enable_prefix_caching", "gpu_memory_utilization"})
"""Labels of `vllm:cache_config_info` that are flags."""

_DRAFT_MODEL = "speculative-config.model"
_VALUE = re.compile(r"[A-Za-z0-9/\[][A-Za-z0-9._/:@+\[\]-]{0,120}\Z", re.ASCII)
FLAG_TEXT = r"\A[A-Za-z0-9/\[][A-Za-z0-9._/:@+\[\]-]{0,255}\Z"
"""How a flag, its value, a model or a version is spelt: all of them become labels."""

_TEXT = re.compile(FLAG_TEXT)
_ENUM = re.compile(r"<\w{1,40}\.(\w{1,40}): [^<>]{1,40}>\Z", re.ASCII)
_RANGE = re.compile(r"[\[(] ?(\d{1,9}), ?(\d{1,9}), ?(\d{1,4}) ?[\])]", re.ASCII)
_DECIMAL = re.compile(r"[0-9]{1,9}\.[0-9]{1,12}\Z")
_UNSET = frozenset({"None", "auto", "null"})
_SWITCHED = {"true": "True", "false": "False", "1": "True", "0": "False"}


def printed_flags(text: str) -> Flags:
    """Return the flags in ``{'max_num_seqs': 24, …}``, ``Namespace(…)`` or ``dtype=…, max_seq_len=…``."""
    found: dict[str, str] = {}
    main = ""
    for key, value in top_level_items(text):
        main = _value(value) or "" if key == "model" else main
        name = _RENAMED.get(key, key)
        if name in _NESTED:
            found.update(_nested(name, value))
        elif name in _SHORTCUTS:
            outer, inner = _SHORTCUTS[name]
            found.update(_among(outer, [(inner, value)]))
        else:
            found.update(_known([(name, value)], _PLAIN))
    if found.get(_DRAFT_MODEL) == main:  # The main model drafts for itself.
        del found[_DRAFT_MODEL]
    return tuple(sorted(found.items()))


_READ_ARGUMENTS = frozenset(
    {*_PLAIN, *_NESTED, *_SHORTCUTS, *_RENAMED, "model", "model_tag", "served_model_name", "disable_log_stats"}
)


def read_arguments(text: str) -> str:
    """Return printed arguments as ``a=1, …`` without those that no parser reads; the others may hold secrets."""
    return ", ".join(
        f"{name}={_read_part(name, value)}" for name, value in top_level_items(text) if name in _READ_ARGUMENTS
    )


def _read_part(name: str, value: str) -> str:
    wanted = _NESTED.get(_RENAMED.get(name, name))
    if wanted is None:
        return value
    named = ((_RENAMED.get(key, key), printed) for key, printed in _inner_items(value))
    return "{" + ", ".join(f"'{key}': {printed}" for key, printed in named if key in wanted) + "}"


def cache_flags(labels: Mapping[str, str]) -> Flags:
    """Return the flags among the labels of `vllm:cache_config_info`."""
    items = ((_RENAMED.get(name, name), value) for name, value in labels.items() if name in CACHE_LABELS)
    return tuple(sorted(_known(items, _PLAIN)))


def given_flags(options: Iterable[tuple[str, str]]) -> Flags:
    """
    Return the flags among the options of a command line.

    Args:
        options: Their names without dashes in front, and their values: of a switch ``true`` or ``false``.
    """
    found: dict[str, str] = {}
    for option, value in options:
        outer, _, inner = option.replace("-", "_").partition(".")
        outer, inner = _SHORTCUTS.get(outer, (outer, inner))
        if outer in _NESTED:
            found.update(_among(outer, [(inner, value)]) if inner else _nested(outer, value))
        elif outer in _SWITCHES:
            found.update(_known([(outer, _SWITCHED.get(value.lower(), ""))], _SWITCHES))
        else:
            found.update(_known([(outer, value)], _VALUES))
    return tuple(sorted(found.items()))


def is_flag_text(text: str) -> bool:
    """Return whether a text is spelt like a flag, its value, a model or a version."""
    return _TEXT.match(text) is not None


def flag_name(argument: str) -> str:
    """Return the name of a flag on the command line, without the leading dashes."""
    return argument.replace("_", "-")


def _nested(outer: str, text: str) -> Iterator[tuple[str, str]]:
    return _among(outer, _inner_items(text))


def _inner_items(printed: str) -> Iterator[tuple[str, str]]:
    text = unquote(printed) or printed  # JSON, where vLLM did not parse it.
    return top_level_items(text if text.startswith("{") else re.sub(r"^\w{1,60}\(", "", text))


def _among(outer: str, items: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    named = ((_RENAMED.get(key, key), value) for key, value in items)
    for name, value in _known(named, _NESTED[outer]):
        flag = f"{flag_name(outer)}.{name.replace('-', '_')}"
        yield _OTHER_NAMES.get(flag, flag), value


def _known(items: Iterable[tuple[str, str]], wanted: frozenset[str]) -> Iterator[tuple[str, str]]:
    for name, printed in items:
        read = _schedule if name == _SCHEDULE else _value
        value = read(printed) if name in wanted else None
        if value is not None:
            yield flag_name(name), value


def _schedule(printed: str) -> str | None:
    """Return a schedule as text; `None` if there is none, or it is too long to be shown."""
    text = "/".join(f"{first}-{last}:{tokens}" for first, last, tokens in _RANGE.findall(printed))
    return text if is_flag_text(text) else None


def least_drafted(schedule: str) -> int | None:
    """Return the fewest tokens that are drafted by the value of `DRAFT_SCHEDULE`."""
    drafted = (each.rpartition(":")[2] for each in schedule.split("/"))
    return min((int(tokens) for tokens in drafted if tokens.isdecimal()), default=None)


def _value(printed: str) -> str | None:
    """Return a value as on a command line; `None` if it is not set, or no plain value."""
    text = (unquote(printed) or printed).strip().removeprefix("torch.")
    enum = _ENUM.match(text)
    if enum is not None:
        text = enum[1]
    if text in _UNSET or not _VALUE.match(text):
        return None
    return repr(float(text)) if _DECIMAL.match(text) else text


class CommandFacts(NamedTuple):
    """
    Facts from a server's command line, for what its log does not have.

    A fact from the log takes precedence: the log shows what vLLM made of its arguments. `flags` are the options of the
    list in `flags`, sizes among them; `None` where there is no command line. `model` is what was given as the model.
    """

    model_name: str = ""
    has_several_api_servers: bool = False
    log_stats_disabled: bool = False
    flags: Flags | None = None
    model: str | None = None
