# SPDX-License-Identifier: Apache-2.0
"""
Lines of a server's start, rest and end: version, model, limits, capacity, ready, asleep, paused, shut down.

Everything else that the start prints is ignored, above all the arguments that no list names: releases before 0.29
print the API key among them.
"""

from __future__ import annotations

import re

from collections.abc import Callable, Mapping

from vllm_watch_parsers.events import (
    MEMORY_TAGS,
    AdapterChange,
    Event,
    Lifecycle,
    Notice,
    SleepOrPause,
    StartupDetail,
    StartupFact,
)
from vllm_watch_parsers.fields import MAX_DRAFT_TOKENS, MAX_REQUESTS, MAX_TOKENS, number, whole
from vllm_watch_parsers.flags import DRAFT_SCHEDULE, flag_name, printed_flags, top_level_items, unquote


_VERSION = r"([0-9]{1,4}\.[0-9]{1,4}[0-9A-Za-z.+-]{0,60})"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@+-]{0,255}\Z|/[A-Za-z0-9._/:@+-]{1,255}\Z")
_DEVICE = r"[A-Z][A-Z0-9_]{1,15}(?: \+ \w{2,16})?"  # "GPU", "GPU + host"; not "Added request GPU", as a client may say.
_NUMBER = r"\d[\d,]{0,24}(?:\.\d{1,12})?"
_COUNT = r"\d{1,12}"

# The last lines of the logo of 0.15 and later end in these; each is a continuation line of one record.
_LOGO = re.compile(r"[ ▀-▟]{4,80}█ {1,8}(version|model) {1,8}(\S{1,256})$")
_SPEC_TOKENS = re.compile(
    r"\bnum_spec_tokens=(\d{1,4})\b|['\"]?num_speculative_tokens['\"]?[=:] ?(\d{1,4})\b", re.ASCII
)

_MAX_PROCESSES = 65_536
_MAX_GIB = 1_000_000
_MAX_LOAD_SECONDS = 1_000_000
_MOST: dict[str, float] = {
    "max_model_len": 1_000_000_000,
    "max_num_seqs": MAX_REQUESTS,
    "tensor_parallel_size": _MAX_PROCESSES,
    "data_parallel_size": _MAX_PROCESSES,
    "api_server_count": _MAX_PROCESSES,
    "num_speculative_tokens": MAX_DRAFT_TOKENS,
    "block_size": 1_000_000,
    "model_load_gib": _MAX_GIB,
    "model_load_seconds": _MAX_LOAD_SECONDS,
    "weights_load_seconds": _MAX_LOAD_SECONDS,
    "kv_cache_memory_gib": _MAX_GIB,
    "kv_cache_tokens": MAX_TOKENS,
    "max_concurrency": MAX_REQUESTS,
    "num_gpu_blocks": MAX_TOKENS,
    "engine_init_seconds": _MAX_LOAD_SECONDS,
    "compile_seconds": _MAX_LOAD_SECONDS,
    "graph_capture_seconds": _MAX_LOAD_SECONDS,
}
"""The most that a number can be; none is printed with a sign."""

_WHOLE = frozenset({"max_model_len", "kv_cache_tokens", "num_gpu_blocks"})
"""Numbers of messages that are whole."""

Parse = Callable[[re.Match[str]], "tuple[Event, ...]"]


def _fact(**fields: object) -> tuple[Event, ...]:
    return _reported(StartupFact, fields)


def _detail(**fields: object) -> tuple[Event, ...]:
    return _reported(StartupDetail, fields)


def _reported(kind: type[StartupFact | StartupDetail], fields: Mapping[str, object]) -> tuple[Event, ...]:
    out_of_range = [
        name for name, most in _MOST.items() if isinstance(value := fields.get(name), (int, float)) and value > most
    ]
    accepted = {name: value for name, value in fields.items() if name not in out_of_range}
    event = kind(**accepted)  # type: ignore[arg-type]  # Called with the fields' own types below.
    return (event, *(Notice("value_out_of_range", name) for name in out_of_range))


def _started(found: re.Match[str]) -> tuple[Event, ...]:
    return (Lifecycle("starting"), StartupFact(version=found[1]))


def _started_with_model(found: re.Match[str]) -> tuple[Event, ...]:
    return (Lifecycle("starting"), StartupFact(version=found[1], model=known_name(found[2])))


def _initializing(found: re.Match[str]) -> tuple[Event, ...]:
    items = dict(top_level_items(found[3]))
    return _fact(
        version=found[2],
        engine_generation=found[1] or "V0",
        model=known_name(unquote(items.get("model", ""))),
        served_model_name=known_name(items.get("served_model_name", "").strip("'\"")),
        max_model_len=whole(items.get("max_seq_len", "")),
        tensor_parallel_size=whole(items.get("tensor_parallel_size", "")),
        data_parallel_size=whole(items.get("data_parallel_size", "")),
        num_speculative_tokens=_spec_tokens(items.get("speculative_config", "")),
        flags=printed_flags(found[3]),
        flags_of="engine",
    )


def _arguments(found: re.Match[str]) -> tuple[Event, ...]:
    """Return the facts and flags in the printed arguments; all others are ignored, for they may hold secrets."""
    items = dict(top_level_items(found[1]))
    spec_tokens = _spec_tokens(items.get("speculative_config", ""))
    model = known_name(unquote(items.get("model", "")) or unquote(items.get("model_tag", "")))
    flags = printed_flags(found[1])
    return _fact(
        model=model,
        served_model_name=known_name(unquote(items.get("served_model_name", ""))),
        max_model_len=whole(items.get("max_model_len", "")),
        max_num_seqs=whole(items.get("max_num_seqs", "")),
        tensor_parallel_size=whole(items.get("tensor_parallel_size", "")),
        data_parallel_size=whole(items.get("data_parallel_size", "")),
        api_server_count=whole(items.get("api_server_count", "")),
        num_speculative_tokens=spec_tokens or whole(items.get("num_speculative_tokens", "")),
        block_size=whole(items.get("block_size", "")),
        log_stats_disabled=True if items.get("disable_log_stats") == "True" else None,
        flags=flags,
        flags_of="arguments" if flags or model else None,
    )


def _spec_tokens(text: str) -> int | None:
    found = _SPEC_TOKENS.search(text)
    return int(found[1] or found[2]) if found else None


def known_name(text: str | None) -> str | None:
    """Return a model's name if it looks like one and is not too long: it becomes a label."""
    return text if text and _NAME.match(text) else None


def _said_of_flags(found: re.Match[str]) -> tuple[Event, ...]:
    return _detail(flags=tuple((flag_name(name), text) for name, text in found.groupdict().items()))


def _chunked(found: re.Match[str]) -> tuple[Event, ...]:
    return _detail(flags=(("enable-chunked-prefill", "True"), ("max-num-batched-tokens", found[1])))


def _attention_backend(found: re.Match[str]) -> tuple[Event, ...]:
    """Return the backend under vLLM's name for the option: releases up to 0.11 print another one."""
    name = found[1].removeprefix("AttentionBackendEnum.").upper().replace(" ", "_")
    return _detail(flags=(("attention-backend", _BACKENDS.get(name, name)),))


def _said(found: re.Match[str]) -> tuple[Event, ...]:
    """Return the facts that the named groups of a message are."""
    read = {name: (whole if name in _WHOLE else number)(text or "") for name, text in found.groupdict().items()}
    return _fact(**read)


def _phase(phase: str) -> Parse:
    return lambda _found: (Lifecycle(phase),)  # type: ignore[arg-type]  # Called with the literals below.


def _paused(found: re.Match[str]) -> tuple[Event, ...]:
    return (SleepOrPause("resumed" if found[1] == "UNPAUSED" else "paused"),)


def _awake(found: re.Match[str]) -> tuple[Event, ...]:
    """Return what woke up: vLLM prints a list of what was requested, or the set of all that was asleep."""
    tags = found[1] or ""
    is_part = tags.startswith("[")
    return (SleepOrPause("awake", tuple(sorted(tag for tag in MEMORY_TAGS if f"'{tag}'" in tags)) if is_part else ()),)


def _table(*rows: tuple[str, Parse]) -> tuple[tuple[re.Pattern[str], Parse], ...]:
    return tuple((re.compile(pattern, re.DOTALL | re.ASCII), parse) for pattern, parse in rows)


_BACKENDS = {"FLASH_ATTENTION": "FLASH_ATTN", "TRITON_ATTENTION": "TRITON_ATTN", "TRITON": "TRITON_ATTN"}
_BACKEND = (
    r"((?:AttentionBackendEnum\.)?(?:FLASH|Flash|TRITON|Triton|CUTLASS|Cutlass|ROCM_|XPU_MLA|XFormers|Torch SDPA"
    r"|TORCH_SDPA|CPU_MLA|AMX_MLA|TREE_ATTN|FLEX_ATTENTION|Pallas|PALLAS|TOKENSPEED_MLA|B12X|MINIMAX_M3)"
    r"(?: ?[A-Za-z0-9_]{1,24}){0,2}?)"
)
"""Attention backends by their first words: vLLM has other backends, of kernels and of communication."""

_FACTS = (
    rf"Using max model len (?P<max_model_len>{_COUNT})$",
    rf"Loading weights took (?P<weights_load_seconds>{_NUMBER}) s(?:econds)?$",
    rf"Loading model weights took (?P<model_load_gib>{_NUMBER}) Gi?B$",
    (
        rf"Model loading took (?P<model_load_gib>{_NUMBER}) Gi?B(?: memory)? and "
        rf"(?P<model_load_seconds>{_NUMBER}) s(?:econds)?$"
    ),
    rf"Available KV cache memory: (?P<kv_cache_memory_gib>{_NUMBER}) GiB$",
    rf"(?:Auto|Explicitly) set \((?P<kv_cache_memory_gib>{_NUMBER})/{_NUMBER}\) GiB for KV cache on node \d{{1,5}}[.,]",
    rf"# [A-Za-z]{{2,12}} blocks: (?P<num_gpu_blocks>{_COUNT})(?:, # CPU blocks: {_COUNT})?$",
    (
        rf"{_DEVICE} KV cache size: (?P<kv_cache_tokens>{_NUMBER}) tokens(?:, Maximum concurrency for "
        rf"(?P<max_model_len>{_NUMBER}) tokens per request: (?P<max_concurrency>{_NUMBER})x)?$"
    ),
    rf"Maximum concurrency for (?P<max_model_len>{_NUMBER}) tokens per request: (?P<max_concurrency>{_NUMBER})x$",
    (
        r"(?:Engine \d{1,5}: |\d{1,5} Engines: )?vllm cache_config_info with initialization after num_gpu_blocks is: "
        rf"(?P<num_gpu_blocks>{_COUNT})$"
    ),
    rf"Auto-fit max_model_len: reduced from {_COUNT} to (?P<max_model_len>{_COUNT}) to fit in available KV cache\b",
    (
        rf"init engine \(profile, create kv cache, warmup model\) took (?P<engine_init_seconds>{_NUMBER}) s(?:econds)?"
        rf"(?: \(compilation: (?P<compile_seconds>{_NUMBER}) s\b.*)?$"
    ),
    rf"Graph capturing finished in (?P<graph_capture_seconds>{_NUMBER}) secs(?:\.|, took {_NUMBER} GiB)?$",
)
"""Messages whose groups are facts."""

_FLAGS = (
    r"max_num_scheduled_tokens is set to (?P<max_num_scheduled_tokens>\d{1,9}) based on the speculative decoding\b",
    r"Using (?P<kv_cache_dtype>[a-z0-9_]{2,40}) data type to store kv cache\b",
    (
        r"The \w{1,40} draft pass needs \d{1,9} query tokens per request within max_num_batched_tokens=\d{1,9}\. "
        r"Overriding max_num_active_seqs from \d{1,9} to (?P<max_num_active_seqs>\d{1,9})\.$"
    ),
    r"Setting attention block size to (?P<block_size>\d{1,7}) tokens\b",
)
"""Messages whose groups are flags."""

_MESSAGES = _table(
    (rf"vLLM API server version {_VERSION}$", _started),
    (rf"vLLM server version {_VERSION}, serving model (\S{{1,256}})$", _started_with_model),
    (rf"Initializing an? (?:(V\d) )?LLM engine \(v{_VERSION}\) with config: (.*)$", _initializing),
    (r"(?:non-default )?args: (.*)$", _arguments),
    (
        r"Using (?:configuration from |default [\w ]{1,40} config\. ).{0,400}?\bdevice_name=([A-Za-z0-9_-]{2,64})[.,]",
        lambda found: _fact(gpu=found[1].replace("_", " ")),
    ),
    (r"Chunked prefill is enabled with max_num_batched_tokens=(\d{1,9})\.$", _chunked),
    (
        rf"Using {_BACKEND} (?:attention )?backend(?: on V1 engine\.$|\.$| out of potential backends\b)",
        _attention_backend,
    ),
    (
        r"Dynamic speculative decoding is not supported with .{1,300}?Disabling num_speculative_tokens_per_batch_size ",
        lambda _found: _detail(flags=((DRAFT_SCHEDULE, "off"),)),
    ),
    (r"Starting to load model (\S{1,256}?)\.\.\.$", lambda found: _fact(model=known_name(found[1]))),
    (
        rf"torch\.compile (?:takes|took) ({_NUMBER}) s in total$",
        lambda found: _detail(compile_seconds=number(found[1])),
    ),
    *((pattern, _said) for pattern in _FACTS),
    *((pattern, _said_of_flags) for pattern in _FLAGS),
    (
        r"AsyncLLM created with api_server_count more than 1; disabling stats logging",
        lambda _found: (Notice("api_servers_more_than_one"),),
    ),
    (rf"It took {_NUMBER} seconds to fall asleep\.$", lambda _found: (SleepOrPause("asleep"),)),
    (r"It took [\d.]{1,24} seconds to wake up(?: tags (.{1,80}))?\.$", _awake),
    (r"Loaded new LoRA adapter: name '", lambda _found: (AdapterChange("loaded"),)),
    (r"Removed LoRA adapter: name '", lambda _found: (AdapterChange("removed"),)),
    (r"setting pause state to (PAUSED_NEW|PAUSED_ALL|UNPAUSED)$", _paused),
    (r"OpenAI server is ready to accept requests(?: |$)", _phase("ready")),
    (r"Server is ready to accept requests$", _phase("ready")),
    (r"Gracefully stopping http server$", _phase("shutting_down")),
    (r"Shutting down FastAPI HTTP server\.$", _phase("shutting_down")),
    (r"\[shutdown\] API server: shutdown triggered$", _phase("shutting_down")),
)


def _by_letter() -> dict[str, tuple[tuple[re.Pattern[str], Parse], ...]]:
    """Return the messages by their first letter, where they start with one: to try all of them is slow."""
    letters = {pattern.pattern[0] for pattern, _ in _MESSAGES if pattern.pattern[0].isalpha()}
    return {
        letter: tuple(row for row in _MESSAGES if row[0].pattern[0] == letter or row in _ANY_LETTER)
        for letter in letters
    }


_ANY_LETTER = tuple(row for row in _MESSAGES if not row[0].pattern[0].isalpha())
_BY_LETTER = _by_letter()

_NOT_LITERAL = ("args", "non-", "Auto", "Expl", "Engi", "vllm", "[shu")
STARTS = frozenset(
    [pattern.pattern[:4].encode() for pattern, _ in _MESSAGES if re.match(r"[A-Za-z_ ]{4}", pattern.pattern)]
    + [start.encode() for start in _NOT_LITERAL]
)
"""The first four letters of the messages above, but for those that start with a number, ``#`` or a device's name."""

_UVICORN = {
    "Application startup complete.": "ready",
    "Shutting down": "shutting_down",
    "Application shutdown complete.": "stopped",
}
_UVICORN_STOPPED = re.compile(r"Finished server process \[\d{1,10}\]$")


_EMPTY = (StartupFact(), StartupDetail())


def parse_startup(message: str) -> tuple[Event, ...]:
    """Parse the message of a vLLM record; a line may give two events (it starts, in this version)."""
    for pattern, parse in _BY_LETTER.get(message[:1], _ANY_LETTER):
        found = pattern.match(message)
        if found:
            return tuple(event for event in parse(found) if event not in _EMPTY)
    return ()


def parse_logo(message: str) -> tuple[Event, ...]:
    """Parse a line of the logo that 0.15 and later print at the start, made of block characters."""
    found = _LOGO.match(message)
    if found is None:
        return ()
    if found[1] == "model":
        name = known_name(found[2])
        return _fact(model=name) if name else ()
    version = re.match(_VERSION + "$", found[2])
    return (Lifecycle("starting"), StartupFact(version=version[1])) if version else ()


def parse_uvicorn(message: str) -> tuple[Event, ...]:
    """Parse uvicorn's lines about the server's start and end, after ``INFO:     ``."""
    phase = _UVICORN.get(message)
    if phase is None and _UVICORN_STOPPED.match(message):
        phase = "stopped"
    return (Lifecycle(phase),) if phase else ()  # type: ignore[arg-type]  # The table holds phases only.
