# SPDX-License-Identifier: Apache-2.0
"""The Chinese documents are in step with the English ones."""

from __future__ import annotations

import os
import re

from pathlib import Path

import pytest

from tests.support.translation import differences, sections, untranslated

from vllm_watch.cli import cli


ROOT = Path(__file__).parents[1]
PAIRS = ("README", "daemon/COMMANDS", "daemon/BEHAVIOUR", "daemon/COMPARING", "daemon/ADVISING")
"""Documents that have a translation beside them."""

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
    "The commands of vllm-watch": "vllm-watch 的命令",
    **{f"`{name}`": f"`{name}`" for name in cli.commands},
    "How vllm-watch behaves": "vllm-watch 的行为",
    "Two sources": "两个数据来源",
    "Pages of Ray and KServe": "Ray 与 KServe 的页面",
    "What a server runs with": "服务器以什么参数运行",
    "How much an engine can carry": "引擎最多能承载多少",
    "Energy and cost of tokens": "token 的能耗与成本",
    "When an engine is stalled": "引擎何时判为卡住",
    "The probe": "探测",
    "How GPUs are read": "怎样读取 GPU",
    "Which GPUs a server has": "哪些 GPU 属于哪台服务器",
    "GPU errors that the kernel reports": "内核报告的 GPU 错误",
    "How GPUs are shown": "GPU 如何显示",
    "How latencies are shown": "延迟如何显示",
    "The status page": "状态页",
    "What is guaranteed": "保证",
    "Recording": "录制",
    "JSON": "JSON",
    "Measured": "实测",
    "How vllm-watch compares load tests": "vllm-watch 如何比较压力测试",
    "What a side may be": "一方可以是什么",
    "How to test": "如何测试",
    "What the verdicts mean": "各结论的含义",
    "How many runs": "需要多少次运行",
    "What a verdict is based on": "结论的依据",
    "TTFT near saturation": "接近饱和时的 TTFT",
    "When there are no numbers": "什么时候没有数字",
    "Known traps": "已知的陷阱",
    "Energy and cost": "能耗与成本",
    "In CI": "在 CI 中",
    "How this is proved": "如何证明",
    "How vllm-watch advises on flags": "vllm-watch 如何给出参数建议",
    "What it reads": "它读取什么",
    "When it says something": "什么时候有建议",
    "The rules": "规则",
    "What it does not say": "它不说什么",
    "How to check": "如何验证",
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


def english(name):
    """Return a document."""
    return (ROOT / f"{name}.md").read_text(encoding="utf-8")


def chinese(name):
    """Return its translation."""
    return (ROOT / f"{name}.zh-CN.md").read_text(encoding="utf-8")


def to_translations(text, folder):
    """Return a document of a folder with each link to one that is translated led to the translation."""

    def led(link):
        target = os.path.normpath(os.path.join(folder, link[1])).removesuffix(".md")
        return link[0].replace(".md", ".zh-CN.md", 1) if target in PAIRS else link[0]

    return LINK.sub(led, text)


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


@pytest.mark.parametrize("name", PAIRS)
def test_each_links_to_the_other(name):
    """Under the title each document links to the one in the other language."""
    file = name.rpartition("/")[2]

    assert english(name).splitlines()[2] == f"English | [简体中文]({file}.zh-CN.md)"
    assert chinese(name).splitlines()[2] == f"[English]({file}.md) | 简体中文"


@pytest.mark.parametrize("name", PAIRS)
def test_the_chinese_document_is_in_step(name):
    """It has the same headings, blocks, commands, rows, code, links and figures, section by section."""
    folder, _, file = name.rpartition("/")
    # Each links to the other, and to the translation of what is translated.
    ours = to_translations(english(name), folder).replace(f"[简体中文]({file}.zh-CN.md)", f"[English]({file}.md)")

    found = list(differences(ours, chinese(name), TITLES))

    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", PAIRS)
def test_each_link_leads_somewhere(name):
    """Each file and each heading that a document links to is there."""
    folder = name.rpartition("/")[0]

    assert [] == [*broken(english(name), folder), *broken(chinese(name), folder)]


def test_a_broken_link_is_found():
    """A file and a heading that are not there are told; those that are there, and other hosts, are not."""
    text = "[a](README.md#the-data) [b](none.md) [c](README.md#glossary) [d](../README.md) [e](https://f.example/g#h)"

    assert ["README.md#the-data", "none.md#"] == list(broken(text, "daemon"))


def test_links_are_led_to_translations():
    """A link to a translated document leads to its translation, heading and all; a link to any other one stays."""
    text = "[a](BEHAVIOUR.md#json) [b](../README.md) [c](../alerts/README.md) [d](METRICS.md)"

    assert to_translations(text, "daemon") == (
        "[a](BEHAVIOUR.zh-CN.md#json) [b](../README.zh-CN.md) [c](../alerts/README.md) [d](METRICS.md)"
    )


def test_the_number_of_alerts_is_right():
    """Both READMEs say how many alerts there are: each has its runbook."""
    number = len(list((ROOT / "alerts" / "runbooks").glob("*.md")))

    assert f"each of the {number} alerts" in english("README")
    assert f"{number} 个告警" in chinese("README")


def test_no_title_is_left_over():
    """Each translated title is one of the documents."""
    assert set(TITLES) <= {section.heading.lstrip("# ") for name in PAIRS for section in sections(english(name))}


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
