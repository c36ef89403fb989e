# SPDX-License-Identifier: Apache-2.0
"""
Writes the manual page vllm-watch(1) from the help of the commands: ``make generate``.

Commands, options, defaults and environment variables are those of the command line, the exit status is that of
``vllm_watch/cli.py``. Only what no help has is written here. The format is that of ``man``'s macros, man(7). click-man
does not import lazily loaded commands and has none of the sections after the options.
"""

from __future__ import annotations

import inspect
import re
import sys
import textwrap

from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from vllm_watch import __version__
from vllm_watch.cli import command_line as cli
from vllm_watch.cli.command_line import LazyCommand


HERE = Path(__file__).parent
PAGE = HERE / "vllm-watch.1"
HEAD = '.\\" SPDX-License-Identifier: Apache-2.0\n.\\" Made by `make generate` from the help of the commands.\n'
WIDTH = 72

DESCRIPTION = """
A daemon beside a vLLM server follows the server's log, scrapes its /metrics, and exports one set of Prometheus series
with stable names for every release of vLLM. The log alone is enough, /metrics alone is enough, and either may disappear
and come back. Other commands read finished logs, record and compare load tests, and check what would be watched.
"""
FILES: Mapping[str, str] = {
    "/etc/vllm-watch/vllm-watch.yml": "The configuration of the service. CONFIGURATION.md describes its keys.",
    "/etc/default/vllm-watch": "Environment of the service: which configuration it reads, and further options.",
    "/var/lib/vllm-watch/checkpoint.json": "The position in each log, where the configuration says so.",
}
ENVIRONMENT: Mapping[str, str] = {
    "VLLM_WATCH_CONFIG, VLLM_WATCH_OPTIONS": "The configuration and further options of run: for the service only.",
    "TZ": "The time zone of logs and results, which do not print one.",
    "PROMETHEUS_TOKEN_FILE, PROMETHEUS_CA_FILE": "Bearer token and authorities of a Prometheus that is a source.",
    "NO_COLOR": "top uses no colours.",
    "LC_ALL, LC_CTYPE, LANG, PYTHONUTF8": "Whether the terminal shows UTF-8, for top, which else uses ASCII.",
    "TERM": "The kind of terminal, for top: it uses ASCII on dumb, linux, vt100, vt102 and vt220.",
    "COLUMNS": "How wide the screen of top --once is, if not as the terminal.",
    "COLORFGBG": "Whether the terminal's background is light, for top.",
    "TMPDIR": "Where backfill, backtest and demo keep files while they work.",
}
SIGNALS: Mapping[str, str] = {
    "SIGTERM, SIGINT": "run and demo read the last lines, write the checkpoint and end within 5 s; a second one ends "
    "them at once. record ends its command, then the recording.",
    "SIGHUP": "run reads its configuration again, or searches for servers. If the configuration is wrong, the old one "
    "stays. record ends.",
}
SEE_ALSO = (
    "promtool(1), journalctl(1), systemctl(1)",
    "The documentation is at https://github.com/vllm-watch/vllm-watch",
)

_NAMES = re.compile(r"((?:-{1,2}[a-z][a-z-]*(?:, )?)+)(?: (.+))?")
"""An option's names, and the placeholder of its value."""


def manual_page(root: click.Group) -> str:
    """Return the page in the format of man(7)."""
    context = click.Context(root, info_name="vllm-watch", **root.context_settings)
    commands = [(name, _loaded(command)) for name, command in root.commands.items()]
    parts = [
        HEAD,
        f'.TH VLLM\\-WATCH 1 "" "vllm\\-watch {__version__}" "User Commands"\n',
        _part("SH", "NAME", _plain(f"vllm-watch - {_as_phrase(_paragraphs(root)[0])}")),
        _part("SH", "SYNOPSIS", *(_synopsis(context, name, command) for name, command in commands)),
        _part("SH", "DESCRIPTION", _paragraph(DESCRIPTION)),
        _part("SH", "COMMANDS", *(_command(context, name, command) for name, command in commands)),
        _part("SH", "OPTIONS", *_options(context, root)),
        _part("SH", "FILES", *_list(FILES)),
        _part("SH", "ENVIRONMENT", *_list({**ENVIRONMENT, **_variables(context, root)})),
        _part("SH", "EXIT STATUS", *_list(exit_status())),
        _part("SH", "SIGNALS", *_list(SIGNALS)),
        _part("SH", "SEE ALSO", *map(_paragraph, SEE_ALSO)),
    ]
    return "".join(parts)


def exit_status() -> dict[str, str]:
    """Return what each exit status means, from the sentence in ``cli.py``."""
    (sentence,) = re.findall(r"Exit status: ([^.]+)\.", " ".join(str(cli.__doc__).split()))
    return {number: _as_sentence(meaning) for number, meaning in re.findall(r"(\d) (.+?)(?:, (?=\d)|$)", sentence)}


def _loaded(command: click.Command) -> click.Command:
    return command.load() if isinstance(command, LazyCommand) else command


def _below(context: click.Context, name: str, command: click.Command) -> Iterator[tuple[click.Context, click.Command]]:
    """Yield a command with its context, and those below it."""
    own = click.Context(command, info_name=name, parent=context)
    yield own, command
    if isinstance(command, click.Group):
        for each, below in command.commands.items():
            yield from _below(own, each, below)


def _synopsis(context: click.Context, name: str, command: click.Command) -> str:
    return "".join(
        f".br\n\\fB{_escaped(own.command_path)}\\fR {_escaped(' '.join(each.collect_usage_pieces(own)))}\n"
        for own, each in _below(context, name, command)
        if not isinstance(each, click.Group)
    )


def _command(context: click.Context, name: str, command: click.Command) -> str:
    return "".join(
        _part("SS", own.command_path, *map(_paragraph, _paragraphs(each)), *_options(own, each))
        for own, each in _below(context, name, command)
    )


def _paragraphs(command: click.Command) -> list[str]:
    return [" ".join(each.split()) for each in inspect.cleandoc(command.help or "").split("\n\n")]


def _options(context: click.Context, command: click.Command) -> Iterator[str]:
    """Yield the options of a command with their help; ``--help``, which each has, only of the whole."""
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
        if record is None or ("--help" in parameter.opts and context.parent is not None):
            continue
        names, text = record
        found = _NAMES.fullmatch(names)
        if found is None:
            raise ValueError(f"{context.command_path}: {names}: these are no names of an option")
        value = f" \\fI{_escaped(found[2])}\\fR" if found[2] else ""
        yield f".TP\n\\fB{_escaped(found[1])}\\fR{value}\n{_plain(text)}"


def _variables(context: click.Context, root: click.Group) -> dict[str, str]:
    """Return for each environment variable which options it is the default of."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, command in root.commands.items():
        for own, each in _below(context, name, _loaded(command)):
            for parameter in each.params:
                if isinstance(parameter.envvar, str):
                    option = max(parameter.opts, key=len)
                    found[parameter.envvar].append(f"{own.command_path.partition(' ')[2]} {option}")
    return {variable: f"The default of {', '.join(options)}." for variable, options in found.items()}


def _list(entries: Mapping[str, str]) -> Iterator[str]:
    for name, text in entries.items():
        yield f".TP\n\\fB{_escaped(name)}\\fR\n{_plain(text)}"


def _part(macro: str, title: str, *parts: str) -> str:
    """Return a part below its title, after which a paragraph or a line begins anyway."""
    return f'.{macro} "{_escaped(title)}"\n' + "".join(parts).removeprefix(".PP\n").removeprefix(".br\n")


def _paragraph(text: str) -> str:
    return f".PP\n{_plain(text)}"


def _plain(text: str) -> str:
    """Return a text as lines, none of which is a request of the formatter."""
    lines = textwrap.wrap(" ".join(text.split()), WIDTH, break_long_words=False, break_on_hyphens=False)
    return "".join(f"{_escaped(line)}\n" for line in lines)


def _escaped(text: str) -> str:
    """Return a text in which nothing has a meaning for the formatter; a minus stays one, to be copied."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def _as_phrase(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:].rstrip(".")


def _as_sentence(phrase: str) -> str:
    return phrase[0].upper() + phrase[1:].rstrip(".") + "."


def main() -> None:
    """Write the page."""
    PAGE.write_text(manual_page(cli.cli), encoding="ascii")
    print(PAGE, file=sys.stderr)


if __name__ == "__main__":
    main()
