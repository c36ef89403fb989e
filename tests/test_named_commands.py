# SPDX-License-Identifier: Apache-2.0
"""Each command and option of vllm-watch that a text names is one of the command line."""

from __future__ import annotations

import re

from pathlib import Path

import click
import pytest

from tests.support.yaml_files import load_all_yaml

from vllm_watch.cli.command_line import LazyCommand, cli


ROOT = Path(__file__).parents[1]
TEXTS = [
    path
    for pattern in (
        "README*.md",
        "[!t]*/README.md",
        "Makefile",
        "alerts/[!s]*/**/*",  # What is in source/ is in rules/, too.
        "dashboards/texts/*/*.yml",
        ".github/*.md",
        "daemon/[!R]*.md",
        "tests/*README.md",
        "daemon/vllm_watch/**/*.py",
        "daemon/vllm_watch/daemon/web/static/*",
        "deploy/*/**/*",
        "deploy/*.[!m]*",
    )
    for path in sorted(ROOT.glob(pattern))
    if path.is_file() and path.suffix != ".pyc"
]
PROSE = frozenset(
    re.findall(
        r"\w+",
        """
        a advises again and answers as at behaves believes beside by cannot checks could daemon did does every
        failed for gave had has have holds in is itself keeps knows like looks missed needs notices of on or
        processes read reads reloaded requests running runs says sees showed shown shows start started starts
        that the to trusts under unwell uses vllm wants was watches wheel with without writes compares
        """,
    )
)
"""What follows the name in a sentence."""

# Not in `-u vllm-watch`, which is systemd's, and not where the name is a part of another one.
NAMED = re.compile(
    r"(?<![\w.@-])(?<!-u )vllm-watch +([a-z]+)\b(?!:)"
    r"((?:[^`\n|;#).,:]|[.,:](?! |\n))*)"
)
OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*(?![\w-])")


def loaded(found):
    """Return a command; one of the command line's list imported."""
    return found.load() if isinstance(found, LazyCommand) else found


def command(words):
    """Return the command that words begin with, and what it takes; `None` if there is none."""
    found = cli
    for word in words:
        below = found.commands.get(word) if isinstance(found, click.Group) else None
        if below is None:
            break
        found = loaded(below)
    return None if found is cli else found


def options(of):
    """Return all options of a command, and of what is below it."""
    own = {name for each in of.params for name in (*each.opts, *each.secondary_opts) if name.startswith("-")}
    below = of.commands.values() if isinstance(of, click.Group) else ()
    return own.union({"--help", "-h"}, *map(options, below))


def spellings(of):
    """Return the ways to write each option of a command, and of what is below it: `--output` and `-o` are one."""
    own = [set(each.opts) for each in of.params if isinstance(each, click.Option)]
    below = of.commands.values() if isinstance(of, click.Group) else ()
    return own + [names for each in below for names in spellings(each)]


def unwrapped(text):
    """Return Markdown with each sentence on one line; code keeps its lines."""
    return re.sub(r"(?<!\n)\n(?! {4}|\n)", " ", text)


def scalars(node):
    """Yield every text of a YAML document."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict):
        for each in node.values():
            yield from scalars(each)
    elif not isinstance(node, int | float | None):
        for each in node:
            yield from scalars(each)


def wrong(text):
    """Return what a text says of the command line that is not so."""
    found = []
    for named in NAMED.finditer(text):
        if named[1] in PROSE:
            continue
        words = f"{named[1]} {named[2]}".split()
        of = command(words)
        if of is None:
            found.append(f"vllm-watch {named[1]}")
        elif isinstance(of, click.Group) and words[1:2] and words[1].isalpha():
            found.append(f"vllm-watch {of.name} {words[1]}")
        else:
            own = named[2].partition(" -- ")[0]  # After it comes another command.
            found += [f"{of.name} {each}" for each in OPTION.findall(own) if each not in options(of)]
    return found


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_command_that_is_named_is_there(path):
    """Whatever a text tells people to run can be run, with the options that stand beside it."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        text = unwrapped(text)
    elif path.suffix in {".yml", ".yaml"} and path.parent.name != "templates":  # Helm's are no YAML yet.
        text = "\n".join([text, *scalars(load_all_yaml(text))])  # Comments, and sentences without their breaks.

    assert wrong(text) == []


def test_each_option_of_the_document_of_commands_is_the_commands():
    """A section of COMMANDS.md names each option of its command and no other, and no command has no section."""
    text = (ROOT / "daemon" / "COMMANDS.md").read_text(encoding="utf-8")
    sections = re.findall(r"(?ms)^## `([a-z]+)`\n(.*?)(?=^## |\Z)", text)

    assert [name for name, _ in sections] == re.findall("(?m)^## `?([^`\n]*)", text)
    assert sorted(name for name, _ in sections) == sorted(cli.commands)
    for name, section in sections:
        code = " ".join(re.findall("`([^`]+)`", section))
        named = set(OPTION.findall(re.sub(r"--storage\.tsdb\.\S+", "", code)))  # Those are Prometheus'.
        of = loaded(cli.commands[name])
        assert named <= options(of), name
        assert [] == [each for each in spellings(of) if not named & each], name


@pytest.mark.parametrize("language", ["", ".zh-CN"])
def test_the_table_of_commands_leads_to_their_sections(language):
    """The README's table has a row for each command, in the document's order, with a link to its section."""
    readme = (ROOT / f"README{language}.md").read_text(encoding="utf-8")
    text = (ROOT / "daemon" / "COMMANDS.md").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| \[`vllm-watch ([a-z]+)`\]\((.*?)\) \|.*\|$", readme)

    assert [name for name, _ in rows] == re.findall("(?m)^## `([a-z]+)`$", text)
    assert all(link == f"daemon/COMMANDS.md#{name}" for name, link in rows)
