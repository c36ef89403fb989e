# SPDX-License-Identifier: Apache-2.0
"""The Chinese README is in step with the English one, and links lead somewhere."""

from __future__ import annotations

import re

from pathlib import Path

import pytest

from tests.support.translation import differences, headings


ROOT = Path(__file__).parents[1]
DOCUMENTS = (
    "README.md",
    "README.zh-CN.md",
    *(f"daemon/{name}.md" for name in ("COMMANDS", "BEHAVIOUR", "NUMBERS", "GPUS", "API", "COMPARING", "ADVISING")),
)

TITLES = {
    "vllm-watch": "vllm-watch",
    "Try it": "试一试",
    "Use it": "使用",
    "Configuration": "配置",
    "States": "状态",
    "Cost": "开销",
    "Alerts": "告警",
    "Dashboards": "仪表盘",
    "Develop": "开发",
}

LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")
"""A link to another file or to a heading: the file's path, as the link has it, and the heading's anchor."""


def text_of(path):
    """Return a document."""
    return (ROOT / path).read_text(encoding="utf-8")


def anchors(text):
    """Return the anchors that GitHub gives a document's headings."""
    titles = (heading.lstrip("# ").lower() for heading in headings(text))
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}


def broken(text, folder):
    """Yield each link of a document, which is in a folder, to a file or a heading that is not there."""
    for link, anchor in LINK.findall(text):
        target = ROOT / folder / link
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            yield f"{link}#{anchor}"


def test_each_readme_links_to_the_other():
    """Under the title each links to the one in the other language."""
    assert text_of("README.md").splitlines()[2] == "English | [简体中文](README.zh-CN.md)"
    assert text_of("README.zh-CN.md").splitlines()[2] == "[English](README.md) | 简体中文"


def test_the_chinese_readme_is_in_step():
    """It has the same headings, blocks, commands, rows, code, links and figures, section by section."""
    ours = text_of("README.md").replace("[简体中文](README.zh-CN.md)", "[English](README.md)")

    found = differences(ours, text_of("README.zh-CN.md"), TITLES)

    assert not found, "\n".join(found)


@pytest.mark.parametrize("path", DOCUMENTS)
def test_each_link_leads_somewhere(path):
    """Each file and each heading that a document links to is there."""
    assert [] == list(broken(text_of(path), path.rpartition("/")[0]))


def test_no_title_is_left_over():
    """Each translated title is one of the README."""
    assert set(TITLES) <= {heading.lstrip("# ") for heading in headings(text_of("README.md"))}


def test_each_module_that_the_map_names_is_there():
    """daemon/README.md leads to files and folders that exist."""
    homes = (ROOT / "daemon" / "vllm_watch", ROOT / "parsers")
    paths = set(re.findall(r"`((?:daemon|analysis|cli|vllm_watch_parsers)/[\w/*.]*)`", text_of("daemon/README.md")))

    assert len(paths) > 40
    assert [] == sorted(path for path in paths if not any(list(home.glob(path)) for home in homes))
