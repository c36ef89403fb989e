# SPDX-License-Identifier: Apache-2.0
"""Lines made of a message: its placeholders filled with samples, each of which can be found again."""

from __future__ import annotations

import itertools
import re

from collections.abc import Iterator
from dataclasses import dataclass


PLACEHOLDER = re.compile(r"%(?:0?\d{0,3})(?:\.(\d))?([dfsrigx])|\{(?::([^{}]*))?\}")
OPTIONAL = re.compile(r"⟦([^⟦⟧]*)⟧")

_TEXTS = (
    "",
    "12",
    "GPU",
    "1,234,560",
    "0.99.1",
    "org/model",
    "0.863, 0.679",
    "{'model': 'org/model', 'max_num_seqs': 15, 'tensor_parallel_size': 13}",
    "model='org/model', max_seq_len=4096, tensor_parallel_size=13",
    "GPU.",
    "['weights']",
    "PAUSED_ALL",
    "8.5",
    "FLASH_ATTN",
    "/configs/E=8,N=14336,device_name=NVIDIA_H200.json",
    "feed timeout",
)
"""What a text placeholder may stand for: a number, a device, a version, a model, positions, flags …"""

_FEW_TEXTS = _TEXTS[:7]
_MOST_TEXTS = 3
"""In a message with so many placeholders for texts each may have another one of the few."""


@dataclass(frozen=True)
class Filled:
    """
    A message with samples.

    Args:
        text: What the log would show.
        samples: The numbers in it, as text, and around each the words that are about it.
    """

    text: str
    samples: tuple[tuple[str, str], ...]


_NAMED = re.compile(r"\{([a-z_]+)\}")
_NAMES: tuple[dict[str, str], ...] = (
    {
        "operation": "load_get",
        "transfer_type": "CPU_to_GPU",
        "key": "vllm:kv_offload_tiering_read_bytes",
        "key_with_labels": "vllm:kv_offload_load_size",
        "labelvalues": "('1:fs',)",
    },
    {"operation": "load", "key": "completed"},
)
"""What keys are made of that the sources put together: the operations of connectors, the names of /metrics."""


_CALLED_WITH = {"%s %s during inference: ": "Triton kernel JIT compilation during inference: "}
"""How messages start whose first placeholders always stand for one of a few texts, and with such texts."""


def fillings(format_: str, *, is_mixed: bool = False) -> Iterator[Filled]:
    """
    Yield a message, which has no optional parts any more, with several kinds of samples, the likeliest first.

    Args:
        format_: The message.
        is_mixed: Whether placeholders for texts have different texts; otherwise all have the same.
    """
    for start, text in _CALLED_WITH.items():
        if format_.startswith(start):
            format_ = text + format_.removeprefix(start)
    if _NAMED.search(format_):
        for names in _NAMES:
            filled = _NAMED.sub(lambda found, names=names: names.get(found[1], found[1]), format_)  # type: ignore[misc]
            yield from fillings(filled, is_mixed=is_mixed)
        return
    fields = list(PLACEHOLDER.finditer(format_))
    open_texts = [index for index, found in enumerate(fields) if _is_text(found)]
    choices = [(text,) * len(open_texts) for text in _TEXTS] if open_texts else [()]
    if is_mixed and 1 < len(open_texts) <= _MOST_TEXTS:
        choices = [each for each in itertools.product(_FEW_TEXTS, repeat=len(open_texts)) if len(set(each)) > 1]
    for texts in choices:
        for is_share in (False, True) if "f" in "".join(found[0] for found in fields) else (False,):
            chosen = dict(zip(open_texts, texts, strict=True))
            yield _filled(
                format_, [chosen[i] if i in chosen else _number(f, i, is_share=is_share) for i, f in enumerate(fields)]
            )


def _is_text(found: re.Match[str]) -> bool:
    return found[2] in {"s", "r"} or (found[2] is None and not found[3])


def _number(found: re.Match[str], index: int, *, is_share: bool) -> str:
    """Return the sample of one placeholder: no two are alike, and a share is at most 1, or 100 %."""
    spec = found[3] or ""
    digits = found[1] or next(iter(re.findall(r"\.(\d)", spec)), "1")
    is_real = found[2] in {"f", "g"} or spec.endswith("f")
    if not is_real:
        return f"{index + 3:03d}" if "03" in found[0] else str(index + 3)
    value = (index + 1) / 32 if is_share else index + 1.5
    return f"{value:.{digits}f}"


def _filled(format_: str, values: list[str]) -> Filled:
    pieces, samples, end = [], [], 0
    for found, value in zip(PLACEHOLDER.finditer(format_), values, strict=True):
        pieces += [format_[end : found.start()], value]
        samples.append((value, _words_around(format_, found.start())))
        end = found.end()
    text = "".join([*pieces, format_[end:]]).replace("%%", "%")
    return Filled(text, tuple(samples))


def _words_around(format_: str, at: int) -> str:
    """Return the part of a list of fields in which a placeholder stands: ``Running: %d reqs``, ``Engine {:03d}``."""
    start = format_.rfind(", ", 0, at) + 2 if ", " in format_[:at] else 0
    ends = [end for mark in (", ", ": ") if (end := format_.find(mark, at)) >= 0]
    return format_[start : min(ends, default=len(format_))]


def whole(format_: str) -> str:
    """Return a message with all its optional parts."""
    return OPTIONAL.sub(r"\1", format_)


def least(format_: str) -> str:
    """Return a message without its optional parts."""
    return OPTIONAL.sub("", format_)
