# SPDX-License-Identifier: Apache-2.0
"""The text format and OpenMetrics: what is a sample, what is a page, and where reading ends."""

from __future__ import annotations

import math
import tracemalloc

import pytest

from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_watch_parsers.exposition import (
    MAX_CACHED,
    MAX_LABELS,
    MAX_LINE,
    MAX_SAMPLES,
    Exposition,
    parse_exposition,
)


def values(body: str | bytes):
    """Return the values of a well-formed page's series `a`, by labels."""
    page = parse_exposition(body.encode() if isinstance(body, str) else body, {"a"})
    assert page.problem is None
    assert set(page.series) <= {"a"}
    return page.series.get("a", {})


@pytest.mark.parametrize(
    ("line", "labels", "value"),
    [
        ("a 1", (), 1.0),
        ("a 1.5e3", (), 1500.0),
        ("a -2", (), -2.0),
        ("a +2", (), 2.0),
        ("a .5", (), 0.5),
        ("a 1e+015", (), 1e15),
        ("a +Inf", (), math.inf),
        ("a -Inf", (), -math.inf),
        ("a\t1", (), 1.0),
        ("a  1", (), 1.0),
        ("a 1 ", (), 1.0),
        (" a 1\t", (), 1.0),
        ("a 1\r", (), 1.0),
        ("a{} 1", (), 1.0),
        ('a{b="c"} 1', (("b", "c"),), 1.0),
        ('a{b="c",} 1', (("b", "c"),), 1.0),
        ('a{b="c", d="e"} 1', (("b", "c"), ("d", "e")), 1.0),
        ('a{b=""} 1', (("b", ""),), 1.0),
        ('a{b="x,y"} 1', (("b", "x,y"),), 1.0),
        ('a{b="{x}"} 1', (("b", "{x}"),), 1.0),
        ('a{b="} 9"} 1', (("b", "} 9"),), 1.0),
        ('a{b="c=\\"d\\""} 1', (("b", 'c="d"'),), 1.0),
        ('a{b="\\\\"} 1', (("b", "\\"),), 1.0),
        ('a{b="\\\\n"} 1', (("b", "\\n"),), 1.0),
        ('a{b="\\n"} 1', (("b", "\n"),), 1.0),
        ('a{b="\\x"} 1', (("b", "\\x"),), 1.0),
        ('a{b="é # x"} 1', (("b", "é # x"),), 1.0),
        ('a{b="c"}1', None, None),
        ("a 1 1700000000000", (), 1.0),
        ("a 1 -1", (), 1.0),
        ("a 1 1700000000.123", (), 1.0),
        ('a{le="1"} 5 # {trace_id="x"} 0.5', (("le", "1"),), 5.0),
        ('a{le="1"} 5 1700000000.1 # {trace_id="} 9"} 0.5 1700000000.0', (("le", "1"),), 5.0),
        ('a{b="c"} 5 # {} 9', (("b", "c"),), 5.0),
    ],
)
def test_every_form_of_sample_is_read(line, labels, value):
    """Labels with anything in them, timestamps and exemplars are read; a value needs a blank before it."""
    page = parse_exposition(f"{line}\n".encode(), {"a"})

    if labels is None:
        assert page == Exposition(problem="not_metrics")
    else:
        assert (page.series, page.problem) == ({"a": {labels: value}}, None)


def test_nan_is_a_value():
    """A sample may be no number; what that means is not for the format to say."""
    assert math.isnan(values("a NaN\n")[()])


@pytest.mark.parametrize(
    "line",
    [
        "<html><body>404</body></html>",
        '{"error": "Unauthorized"}',
        "upstream connect error or disconnect/reset before headers",
        "a",
        "a ",
        " 1",
        "1",
        "a b",
        "a 1 2 3",
        "a 1..2",
        "a 1e",
        "a 1-2",
        "a 1_000",
        "a 0x10",
        "a --1",
        "a 1,5",
        "a # {} 1",
        "a{ 1",
        "a} 1",
        "a{b} 1",
        "a{b=c} 1",
        "a{b='c'} 1",
        'a{b="c} 1',
        'a{b="c"',
        'a{b="c" d="e"} 1',
        'a{b="c",,d="e"} 1',
        'a{,b="c"} 1',
        'a{1b="c"} 1',
        'a{b="c\\"} 1',
        'a{b="c"}{d="e"} 1',
        "a-b 1",
        "é 1",
        "9a 1",
        "a" * 300 + " 1",
        "a{" + "b" * 200 + '="c"} 1',
        "\0",
        "a 1\0",
        "a\x0b1",
    ],
)
@pytest.mark.parametrize("place", ["{line}\n", "a 1\n{line}\n", "{line}\na 1\n"])
def test_one_line_that_is_no_sample_spoils_the_page(line, place):
    """Error pages, and pages with a damaged line anywhere, give no sample at all."""
    assert parse_exposition(place.format(line=line).encode(), {"a"}) == Exposition(problem="not_metrics")


@pytest.mark.parametrize("body", ["a 1", "a 1\na 2", "# HELP a b", "a 1\n#"])
def test_a_page_that_does_not_end_with_its_line_is_incomplete(body):
    """A body cut off inside its last line, whatever that is, gives no sample."""
    assert parse_exposition(body.encode(), {"a"}) == Exposition(problem="incomplete")


@pytest.mark.parametrize(
    "body",
    [
        "# HELP a What a is.\n# TYPE a gauge\na 1\n",
        "# TYPE a gauge\r\na 1\r\n",
        "a 1\n# EOF\n",
        "\n\na 1\n\n",
        "#\n# not a keyword {\na 1\n",
        f"# HELP a {'x' * 100_000}\na 1\n",
    ],
)
def test_comments_and_empty_lines_are_passed_over(body):
    """Help, types, the end mark and free comments are not read, however long they are."""
    assert values(body) == {(): 1.0}


def test_an_empty_page_has_no_samples():
    """No bytes, and no more than comments, are a page without samples."""
    assert parse_exposition(b"", {"a"}) == Exposition()
    assert parse_exposition(b"# EOF\n", {"a"}) == Exposition(is_openmetrics=True)


def test_of_a_series_that_is_there_twice_the_last_value_counts():
    """Several samples of one series are one, also where its labels are written in another way."""
    assert values("a 1\na 2\na 1\n") == {(): 1.0}
    assert values('a{b="c"} 1\na{b="c",} 2\n') == {(("b", "c"),): 2.0}


def test_other_names_are_named_and_not_kept():
    """Only wanted samples are kept; of the others the names are, and the first of a name must be well formed, too."""
    found = parse_exposition(b'b 1\na 1\nc{d="e"} 2\nb 2\n', {"a"})

    assert (found.series, found.foreign_names) == ({"a": {(): 1.0}}, {"b", "c"})
    assert parse_exposition(b"b one\na 1\n", {"a"}).problem == "not_metrics"


def test_too_many_samples_are_no_page():
    """The number of wanted samples has an end; that of others has none."""
    line = b"a 1\n"

    assert parse_exposition(line * MAX_SAMPLES, {"a"}).problem is None
    assert parse_exposition(line * MAX_SAMPLES + line, {"a"}) == Exposition(problem="too_many_samples")
    assert values(b"b 1\n" * MAX_SAMPLES + line) == {(): 1.0}


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_wanted_line_has_an_end(name):
    """A longer line of a wanted name is no page; one that nobody wants is passed over and counted."""
    longest = f'{name}{{c="{"x" * (MAX_LINE - 9)}"}} 1'
    longer = f"{longest[:5]}x{longest[5:]}\n".encode()

    assert len(longest) == MAX_LINE
    assert parse_exposition(f"{longest}\n".encode(), {"a"}).problem is None
    found = parse_exposition(longer + b"a 1\n", {"a"})
    if name == "a":
        assert found == Exposition(problem="not_metrics")
    else:
        assert (found.series, found.foreign_names, found.long_lines) == ({"a": {(): 1.0}}, {"b"}, 1)


def test_a_line_of_80_000_labels_is_refused():
    """A general parser takes minutes over such a line; here it is too long, and has too many labels."""
    labels = ",".join(f'l{number}="x"' for number in range(80_000))

    assert parse_exposition(f"a{{{labels}}} 1\n".encode(), {"a"}).problem == "not_metrics"


def test_a_series_has_so_many_labels_and_no_more():
    """One label more than the limit makes it no sample."""
    labels = [f'l{number}="x"' for number in range(MAX_LABELS + 1)]

    assert [len(found) for found in values(f"a{{{','.join(labels[:-1])}}} 1\n")] == [MAX_LABELS]
    assert parse_exposition(f"a{{{','.join(labels)}}} 1\n".encode(), {"a"}).problem == "not_metrics"


def test_labels_that_are_no_text_are_replaced():
    """Bytes that are no UTF-8 become the replacement character, and the sample stays."""
    assert values(b'a{b="\xff\xfe"} 1\n') == {(("b", "\ufffd\ufffd"),): 1.0}


def test_what_is_remembered_stays_small():
    """S7: pages of ever new series with as many labels as may be leave little behind."""
    tracemalloc.start()
    for page in range(2):
        lines = (
            "b{" + ",".join(f'l{label}="{page * 100_000 + line}"' for label in range(MAX_LABELS)) + "} 1"
            for line in range(500)
        )
        assert parse_exposition(("\n".join(lines) + "\n").encode(), {"a"}).problem is None
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert kept < 2 * 1024 * 1024


@pytest.mark.parametrize("length", [10, MAX_CACHED - 8, MAX_CACHED - 7, 2 * MAX_CACHED])
def test_long_and_short_series_are_read_alike(length):
    """Only short series are remembered from page to page; long ones are read all the same."""
    body = f'a{{b="{"x" * length}"}} 1\n'

    assert values(body) == values(body) == {(("b", "x" * length),): 1.0}


@pytest.mark.parametrize("name", ["_created", "_total", "_bucket"])
def test_a_name_that_is_only_a_suffix_hides_no_other_line(name):
    """An unwanted sample whose whole name is the suffix of a family is skipped alone."""
    page = parse_exposition(f"{name} 1\nwanted 2\n".encode(), {"wanted"})

    assert page.series == {"wanted": {(): 2.0}}


label_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def escaped(value: str) -> str:
    """Return a label's value as a page writes it."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


@settings(max_examples=60, deadline=None)
@given(
    labels=st.dictionaries(st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,8}", fullmatch=True), label_text, max_size=5),
    value=st.floats(allow_nan=False),
)
def test_what_is_written_is_read(labels, value):
    """Any labels and any number come back as they were written."""
    written = ",".join(f'{name}="{escaped(text)}"' for name, text in labels.items())
    number = str(value).replace("inf", "Inf")
    found = parse_exposition(f"a{{{written}}} {number}\n".encode(), {"a"})

    assert found.problem is None
    assert [(dict(names), number) for names, number in found.series["a"].items()] == [(labels, value)]
