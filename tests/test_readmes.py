# SPDX-License-Identifier: Apache-2.0
"""The Chinese README is in step with the English one, and links lead somewhere."""

from __future__ import annotations

import re

from pathlib import Path

import pytest

from tests.support.translation import differences, sections, untranslated


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

ORIGINAL = """# Tool

See [the *list*](list.md): 7 of `a` and `b`, up to 1,000.

```yaml
key: 1  # what it is,
        # in two lines
other: 2
```

## Use

    tool run      # runs

| name | size |
|---|---|
| `x` | 64 KiB |
| `y` | |

* one ![picture](one.png)
* two
"""
TRANSLATED = """# 工具

见[列表](list.md)。`b` 和 `a` 中的 7 个、最多 1,000。

```yaml
key: 1  # 说明
other: 2
```

## 用法

    tool run  # 运行

| 名称 | 大小 |
|---|---|
| `x` | 64 KiB |
| `y` | |

* 一 ![图](one.png)
* 二
"""
WORDS = {"Tool": "工具", "Use": "用法"}
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")
"""A link to another file or to a heading: the file's path, as the link has it, and the heading's anchor."""


def text_of(path):
    """Return a document."""
    return (ROOT / path).read_text(encoding="utf-8")


def anchors(text):
    """Return the anchors that GitHub gives a document's headings."""
    titles = (section.heading.lstrip("# ").lower() for section in sections(text))
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

    found = list(differences(ours, text_of("README.zh-CN.md"), TITLES))

    assert not found, "\n".join(found)


@pytest.mark.parametrize("path", DOCUMENTS)
def test_each_link_leads_somewhere(path):
    """Each file and each heading that a document links to is there."""
    assert [] == list(broken(text_of(path), path.rpartition("/")[0]))


def test_a_broken_link_is_found():
    """A file and a heading that are not there are told; those that are there, and other hosts, are not."""
    text = "[a](README.md#the-data) [b](none.md) [c](README.md#glossary) [d](../README.md) [e](https://f.example/g#h)"

    assert ["README.md#the-data", "none.md#"] == list(broken(text, "daemon"))


def test_no_title_is_left_over():
    """Each translated title is one of the README."""
    assert set(TITLES) <= {section.heading.lstrip("# ") for section in sections(text_of("README.md"))}


def test_a_good_translation():
    """Another order within a sentence, other words in comments and other distances before them are no difference."""
    assert not list(differences(ORIGINAL, TRANSLATED, WORDS))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "## 用法\n",
            "",
            ["headings: lacks ## 用法 (after # 工具)", "# 工具: blocks: code block [tool run # …] is not in the"],
        ),
        (
            "## 用法",
            "### 用法",
            ["headings: lacks ## 用法 (after # 工具)", "headings: ### 用法 is not in the original"],
        ),
        ("other: 2", "other: 3", ["lines: lacks other: 2 (after key: 1 # …)", "lines: other: 3 is not in the"]),
        ("key: 1  # 说明", "key: 1", ["lines: lacks key: 1 # … (at the beginning)", "lines: key: 1 is not"]),
        (
            "```yaml",
            "```",
            ["# 工具: blocks: lacks code block yaml [key: 1 # …]", "blocks: code block [key: 1 # …] is not"],
        ),
        ("tool run ", "tool go ", ["## 用法: code block 1: lines: lacks tool run # …", "lines: tool go # … is not"]),
        ("| `y` | |\n", "", ["## 用法: table 1: 2 rows instead of 3", "table 1: rows: lacks y (after x 64)"]),
        ("| `x` |", "| x |", ["## 用法: table 1, row 2, column 1: code: lacks x"]),
        ("| `y` | |", "| `y` | `z` |", ["## 用法: table 1, row 3, column 2: code: z is not in the original"]),
        ("64 KiB", "65 KiB", ["row 2, column 2: figures: lacks 64", "row 2, column 2: figures: 65 is not"]),
        ("1,000", "一千", ["# 工具: paragraph 1: figures: lacks 1,000"]),
        ("(list.md)", "(a.md)", ["paragraph 1: links: lacks list.md", "paragraph 1: links: a.md is not"]),
        ("![图](one.png)", "", ["## 用法: list 1, row 1: links: lacks one.png"]),
        ("* 二\n", "", ["## 用法: list 1: 1 rows instead of 2", "list 1: rows: lacks "]),
        ("1,000。", "1,000。\n\n多出的一段。", ["# 工具: blocks: paragraph [] is not in the original"]),
    ],
)
def test_each_difference_is_named(old, new, said):
    """Whatever is missing or too much in a translation, a sentence says what and where."""
    assert old in TRANSLATED
    found = list(differences(ORIGINAL, TRANSLATED.replace(old, new, 1), WORDS))

    for sentence in said:
        assert [each for each in found if sentence in each], found


def test_english_is_a_placeholder():
    """A section that is copied as it is, title and all, is in step; one that is left out is not."""
    section = "\n## More\n\nA lot, and 7 more.\n"

    assert not list(differences(ORIGINAL + section, TRANSLATED + section, WORDS))
    assert ["headings: lacks ## More (after ## 用法)"] == list(differences(ORIGINAL + section, TRANSLATED, WORDS))


def test_placeholders_are_found():
    """What is still English is named: titles, prose, rows and comments, and nothing of a good translation."""
    placeholders = """## More

See [the list](list.md): `a` and
others.

| 名称 | what it is |
|---|---|
| `a b` | `vllm:x` 64 KiB |

    run it    # runs all of it
"""

    assert not list(untranslated(TRANSLATED))
    assert ["More", "See ·the list·: · and others.", "what it is", "# runs all of it"] == list(
        untranslated(TRANSLATED + placeholders)
    )


def test_each_module_that_the_map_names_is_there():
    """daemon/README.md leads to files and folders that exist."""
    homes = (ROOT / "daemon" / "vllm_watch", ROOT / "parsers")
    paths = set(re.findall(r"`((?:daemon|analysis|cli|vllm_watch_parsers)/[\w/*.]*)`", text_of("daemon/README.md")))

    assert len(paths) > 40
    assert [] == sorted(path for path in paths if not any(list(home.glob(path)) for home in homes))
