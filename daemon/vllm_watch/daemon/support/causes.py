# SPDX-License-Identifier: Apache-2.0
"""The errors behind an error: HTTP libraries wrap what the operating system reported several times."""

from __future__ import annotations

from collections.abc import Iterator


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, the error that caused it, and so on to the first."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
