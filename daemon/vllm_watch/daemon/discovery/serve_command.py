# SPDX-License-Identifier: Apache-2.0
"""
The options of a vLLM server, from its command line.

Pure. Only the options of a closed list are kept, so that no key and no token leaves this module: the values of
``--api-key``, ``--hf-token`` and all other options are dropped while the command line is read.
"""

from __future__ import annotations

import re

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

import yaml

from vllm_watch_parsers.flags import OPTIONS, SWITCH_OPTIONS, CommandFacts, Flags, given_flags
from vllm_watch_parsers.startup import known_name


DEFAULT_PORT = 8000

_INTERPRETER = re.compile(r"(?:python|pypy)[0-9.]*t?\Z")
_SERVER_MODULE = "vllm.entrypoints.openai.api_server"
_CLI_MODULES = frozenset({"vllm", "vllm.entrypoints.cli.main", "vllm.scripts"})
_SERVER_SCRIPT = "/vllm/entrypoints/openai/api_server.py"
_PROGRAMS = frozenset({"vllm", "vllm-rs"})
_INTERPRETER_OPTIONS_WITH_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs"})

_MODEL = "model-tag"
_TRUE = "true"
_OFF = frozenset({"false", "0"})

_SHORT = {
    "-ac": "--attention-config",
    "-asc": "--api-server-count",
    "-cc": "--compilation-config",
    "-dcp": "--decode-context-parallel-size",
    "-dp": "--data-parallel-size",
    "-dpm": "--data-parallel-multi-port-external-lb",
    "-ep": "--enable-expert-parallel",
    "-pcp": "--prefill-context-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-q": "--quantization",
    "-sc": "--speculative-config",
    "-tp": "--tensor-parallel-size",
}
_WITH_VALUE = OPTIONS | {"config", "host", "model", "port", "served-model-name", "ssl-certfile", "uds"}
_FLAGS = (
    SWITCH_OPTIONS
    | {f"no-{name}" for name in SWITCH_OPTIONS}
    | {
        "data-parallel-multi-port-external-lb",
        "disable-log-requests",
        "disable-log-stats",
        "disable-uvicorn-access-log",
        "enable-auto-tool-choice",
        "enable-log-requests",
        "headless",
        "no-disable-log-stats",
        "trust-remote-code",
    }
)
"""Options without a value: the next argument is the model or another option."""

_API_KEY = "api-key"
_SIZE = re.compile(r"([0-9]{1,12})(?:\.([0-9]{1,6}))?([kKmMgG])?")
_FACTORS = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
_LARGEST_SIZE = 10**12
"""What is larger is a slip."""


class ServeCommand(NamedTuple):
    """
    The options of a server that matter here.

    `port` is 0 where the kernel chooses one. `config_file` is as it was given, perhaps relative.
    """

    model: str | None = None
    served_model_name: str | None = None
    host: str | None = None
    port: int = DEFAULT_PORT
    uds: str | None = None
    config_file: str | None = None
    uses_tls: bool = False
    needs_api_key: bool = False
    is_headless: bool = False
    log_stats_disabled: bool = False
    api_server_count: int | None = None
    flags: Flags | None = None
    """Those of the list in `flags`, `None` where there is no command line."""

    @property
    def model_name(self) -> str:
        """The model's name for clients, empty if the command line has none."""
        return self.served_model_name or self.model or ""

    @property
    def facts(self) -> CommandFacts:
        """The facts for the server's state."""
        return CommandFacts(
            model_name=known_name(self.model_name) or "",
            has_several_api_servers=(self.api_server_count or 1) > 1,
            log_stats_disabled=self.log_stats_disabled,
            flags=self.flags,
            model=known_name(self.model),
        )


def arguments_of(words: Sequence[str]) -> tuple[str, ...] | None:
    """
    Return a server's arguments, or `None` if this is not a server's command line.

    The program must be vLLM or an interpreter that runs it. ``sudo vllm serve``, ``grep`` and editors only name one.
    """
    program, rest = _program(words)
    if program == _SERVER_MODULE:
        return rest
    return rest[1:] if program in _PROGRAMS and rest[:1] == ("serve",) else None


def _program(words: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return the program that runs, for an interpreter its script or module, and the arguments."""
    if not words:
        return "", ()
    name = PurePosixPath(words[0]).name
    if _INTERPRETER.match(name) is None:
        return name, tuple(words[1:])
    at = 1
    while at < len(words) and words[at].startswith("-"):
        option = words[at]
        if option == "-m":
            return _module(words[at + 1 : at + 2]), tuple(words[at + 2 :])
        if option in {"-c", "-"}:
            return "", ()
        at += 2 if option in _INTERPRETER_OPTIONS_WITH_VALUE else 1
    script = words[at] if at < len(words) else ""
    name = _SERVER_MODULE if script.endswith(_SERVER_SCRIPT) else PurePosixPath(script).name
    return name, tuple(words[at + 1 :])


def _module(name: Sequence[str]) -> str:
    return "vllm" if name and name[0] in _CLI_MODULES else "".join(name)


def parse_arguments(arguments: Iterable[str], config: str | None = None) -> ServeCommand:
    """
    Return a server's options.

    Args:
        arguments: Those of the command line. Of equal options the last counts, as in vLLM.
        config: The content of the file of ``--config``; the command line takes precedence. What is not YAML is ignored.
    """
    options = {**_options(_words_of_config(config)), **_options(arguments)}
    return ServeCommand(
        model=_without_secrets(options.get("model") or options.get(_MODEL)),
        served_model_name=_without_secrets(options.get("served-model-name")),
        host=options.get("host") or None,
        port=_port(options.get("port")),
        uds=options.get("uds") or None,
        config_file=options.get("config") or None,
        uses_tls=bool(options.get("ssl-certfile")),
        needs_api_key=_API_KEY in options,
        is_headless="headless" in options,
        log_stats_disabled=options.get("disable-log-stats") == _TRUE,
        api_server_count=_size(options.get("api-server-count")),
        flags=given_flags((name, _plain_number(value)) for name, value in options.items()),
    )


def _options(words: Iterable[str]) -> dict[str, str]:
    """
    Return the known options by name, without dashes in front.

    Arguments after an unknown option are taken for its values: one of them could be a key.
    """
    found: dict[str, str] = {}
    awaited: str | None = _MODEL
    free = awaited
    for word in words:
        if not _is_option(word):
            if awaited is not None:
                found[awaited] = word
                # Of several names the first is the one that metrics have.
                free = None if awaited == _MODEL else free
                awaited = None if awaited == "served-model-name" else free
            continue
        name, has_value, value = word.partition("=")
        name = _long(name)
        awaited = _take(found, name, value if has_value else None, free)
    return found


def _take(found: dict[str, str], name: str, value: str | None, free: str | None) -> str | None:
    """Keep an option if it is known; return the option whose value the next argument is, if it is a value."""
    if name == _API_KEY:
        found[_API_KEY] = ""
        return None if value is None else free
    if name in _FLAGS:
        is_on = name.startswith("no-") == (value is not None and value.lower() in _OFF)
        found[name.removeprefix("no-")] = _TRUE if is_on else "false"
        return free
    if name not in _WITH_VALUE:
        return None if value is None else free
    if value is None:
        return name
    found[name] = value
    return free


def _is_option(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and not word[1:2].isdigit()


def _long(name: str) -> str:
    first, dot, rest = name.partition(".")
    return f"{_SHORT.get(first, first)}{dot}{rest}".lstrip("-").replace("_", "-")


def _words_of_config(text: str | None) -> Iterator[str]:
    """Yield the options of a configuration file, as the command line would have them."""
    try:
        content = yaml.safe_load(text) if text else None
    except (yaml.YAMLError, RecursionError, ValueError):
        return
    for key, value in content.items() if isinstance(content, Mapping) else ():
        if isinstance(value, Mapping):
            yield from (f"--{key}.{name}={each}" for name, each in value.items())
        else:
            first = value[0] if isinstance(value, list) and value else value
            yield f"--{key}={first}"


def _size(text: str | None) -> int | None:
    """Return a whole number above 0, also one such as ``16k`` or ``25.6k``; `None` for anything else."""
    found = _SIZE.fullmatch(text or "")
    if found is None:
        return None
    whole, decimals, unit = found.groups()
    size = int(float(f"{whole}.{decimals or 0}") * _FACTORS.get(unit, 1))
    return size if 0 < size <= _LARGEST_SIZE else None


def _plain_number(text: str) -> str:
    """Return a size such as ``16k`` as a number; any other text as it is."""
    size = _size(text) if text[-1:].isalpha() else None
    return text if size is None else str(size)


def _port(text: str | None) -> int:
    if text is None or not text.isascii() or not text.isdigit() or int(text[:6]) > 65535:
        return DEFAULT_PORT
    return int(text[:6])


def _without_secrets(name: str | None) -> str | None:
    """Return a model's name; one that is a URL without password and query."""
    if name is None or "://" not in name:
        return name or None
    scheme, _, rest = name.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"
