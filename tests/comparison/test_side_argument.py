# SPDX-License-Identifier: Apache-2.0
"""The sides of a comparison as they are named on the command line."""

from __future__ import annotations

import pytest

from vllm_watch.analysis.comparison.compare_arguments import parse_sides
from vllm_watch.analysis.loadtest.source_names import parse_source
from vllm_watch.daemon.support.errors import UsageError


NOW = 1_795_190_400.0  # 2026-11-20T16:00:00Z
AT_TWO = NOW - 7200


def sides(*texts, existing=()):
    """Return the sides that are named."""
    return parse_sides(texts, existing.__contains__, lambda text: parse_source(text, NOW, {}))


def parsed(*texts, existing=()):
    """Return the sides that are named, each with its sources."""
    return [(side.name, side.sources) for side in sides(*texts, existing=existing)]


def test_a_side_is_a_name_and_its_sources():
    """The name is before the equals sign, or that of the file; sources are apart by commas."""
    assert parsed("A=x/1.json,x/2.json", "a.json") == [("A", ("x/1.json", "x/2.json")), ("a", ("a.json",))]


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        (("old/before.json", "after.jsonl.xz"), ["before", "after"]),
        (("vllm.log.1.gz", "late.log-20261121", "v0.32/.json"), ["vllm", "late", ".json"]),
        (("a-0.5qps-Qwen2.5-7B.json", "a-0.9qps-Qwen2.5-7B.json.gz"), ["a-0.5qps-Qwen2.5-7B", "a-0.9qps-Qwen2.5-7B"]),
        (("results/mtp-on/run1.json", "results/mtp-off/run1.json"), ["mtp-on", "mtp-off"]),
        (("mtp-on/1.json,mtp-on/2.json", "mtp-off/3.json,mtp-off/4.json"), ["mtp-on", "mtp-off"]),
        (("a/result.json", "b/result.json", "c.json"), ["a/result.json", "b/result.json", "c.json"]),
        (("r/on/1.json", "r/off/1.json", "r/c.json"), ["on", "off", "r"]),
        (("x/1/a.json", "x/2/a.json", "y/1/a.json"), ["x/1/a.json", "x/2/a.json", "y/1/a.json"]),
        (("B=x/r.json", "a/r.json", "b/r.json"), ["B", "a", "b"]),
        (("a=x/r.json", "a/r.json", "b/r.json"), ["a", "a/r.json", "b/r.json"]),
        (("r.json", "r.json.gz"), ["r.json", "r.json.gz"]),
    ],
)
def test_files_of_one_name_are_told_apart(texts, names):
    """A side that nobody named has the shortest part of its path that differs, without the numbers of its runs."""
    assert [name for name, _ in parsed(*texts)] == names


def test_signs_in_a_path_are_a_part_of_it():
    """An equals sign after a slash, and whatever is in the name of a file that is there, is no separator."""
    assert parsed(
        "runs/tp=2.json", "tp=4.json", "a,b.json", "C=c,d.json", existing=("tp=4.json", "a,b.json", "c,d.json")
    ) == [
        ("tp=2", ("runs/tp=2.json",)),
        ("tp=4", ("tp=4.json",)),
        ("a,b", ("a,b.json",)),
        ("C", ("c,d.json",)),
    ]


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ((), "give at least two sides"),
        (("a.json",), "give at least two sides"),
        (("A=", "b.json"), "'A=': expected a source, or NAME=SOURCE"),
        (("=a.json", "b.json"), "'=a.json': expected a source"),
        (("a.json,,c.json", "b.json"), "expected a source"),
        (("A=a.json", "A=b.json"), "two sides have the name A: give each its own, as in A="),
        (("a.json", "a.json"), "two sides have the name a.json"),
    ],
)
def test_mistakes(texts, message):
    """What is wrong is said with the text that is."""
    with pytest.raises(UsageError, match=message):
        parsed(*texts)


def test_a_source_may_be_a_time_of_a_prometheus():
    """It stands beside files, and a side without a name has that of its server."""
    first, second = sides("A=prom:http://h:9090/qwen@2026-11-20T14:00Z/14:10,a.json", "prom:http://h/p/b%2Fc:1@-1h")
    (asked, file), (other,) = first.sources, second.sources

    assert (asked.target.url, asked.server, file) == ("http://h:9090", "qwen", "a.json")
    assert [(at - AT_TWO) / 60 for at in asked.times] == [0, 10]
    assert (second.name, other.target.url, tuple(other.times)) == ("b/c:1", "http://h/p", (NOW - 3600, NOW))
