# SPDX-License-Identifier: Apache-2.0
"""Changes that keep a text looking like itself: lines of others, words and numbers in place of others."""

from __future__ import annotations

import re

from collections.abc import Callable, Sequence
from random import Random


Change = Callable[[bytes, Random], bytes]

_WORD = re.compile(rb"[A-Za-z_]+|-?\d+(?:\.\d+)?|[^A-Za-z_\d\s]")
_NUMBERS = (
    b"0", b"-1", b"1", b"0.0", b"99.9", b"100", b"101", b"1e9", b"nan", b"inf", b"-inf", b"1e308", b"1e400", b"1,024",
    b"1_0", b"65535", b"65536", b"9" * 19, b"00", b"0.5", b"1000000",
)  # fmt: skip


def structured(originals: Sequence[bytes], tokens: Sequence[bytes]) -> Change:
    """Return a function that changes a text, with lines of the originals and with the tokens."""
    lines = sorted({line for text in originals for line in text.split(b"\n")})

    def put_line(data: bytes, random: Random) -> bytes:
        own = data.split(b"\n")
        own.insert(random.randint(0, len(own)), random.choice(lines))
        return b"\n".join(own)

    def replace_line(data: bytes, random: Random) -> bytes:
        own = data.split(b"\n")
        own[random.randrange(len(own))] = random.choice(lines)
        return b"\n".join(own)

    def put_token(data: bytes, random: Random) -> bytes:
        at = random.randint(0, len(data))
        return data[:at] + random.choice(tokens) + data[at:]

    of_texts = (_drop_line, _double_line, _move_word, _change_word, _number)
    changes = (put_line, replace_line, put_token, put_token, *of_texts)

    def change(data: bytes, random: Random) -> bytes:
        for _ in range(random.choice((1, 1, 2, 4))):
            data = random.choice(changes)(data, random)
        return data

    return change


def _drop_line(data: bytes, random: Random) -> bytes:
    own = data.split(b"\n")
    del own[random.randrange(len(own))]
    return b"\n".join(own)


def _double_line(data: bytes, random: Random) -> bytes:
    own = data.split(b"\n")
    own.insert(random.randint(0, len(own)), random.choice(own))
    return b"\n".join(own)


def _move_word(data: bytes, random: Random) -> bytes:
    words = list(_WORD.finditer(data))
    if not words:
        return data
    word, at = random.choice(words), random.randint(0, len(data))
    return data[:at] + word[0] + data[at:]


def _change_word(data: bytes, random: Random) -> bytes:
    words = list(_WORD.finditer(data))
    if not words:
        return data
    old, new = random.choice(words), random.choice(words)
    return data[: old.start()] + random.choice((new[0], b"")) + data[old.end() :]


def _number(data: bytes, random: Random) -> bytes:
    numbers = list(re.finditer(rb"\d+(?:\.\d+)?", data))
    if not numbers:
        return data
    old = random.choice(numbers)
    return data[: old.start()] + random.choice(_NUMBERS) + data[old.end() :]
