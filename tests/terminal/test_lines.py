# SPDX-License-Identifier: Apache-2.0
"""Lines and tables fit the screen exactly, whatever is in them."""

from __future__ import annotations

import pytest

from hypothesis import given
from hypothesis import strategies as st
from tests.terminal.made_up import every_state, server

from vllm_watch.cli.terminal.cells import columns
from vllm_watch.cli.terminal.lines import Span, beside, fitted, line, placed, spread, table_lines, wrapped
from vllm_watch.cli.terminal.tables import COLUMNS, SORT_MARK, SORTED_BY, arranged, next_order


texts = st.text(max_size=8)


@given(pieces=st.lists(texts, max_size=3), width=st.integers(0, 40))
def test_a_fitted_line_has_its_width(pieces, width):
    """A line of any text has exactly its width."""
    assert width == columns(fitted(line(*pieces), width).text)


@pytest.mark.parametrize(
    ("pieces", "width", "expected"),
    [
        (("abc", "def"), 6, "abcdef"),
        (("abc", "def"), 5, "abcd…"),
        (("abc", "def"), 3, "ab…"),
        (("abc", "   "), 3, "abc"),
        (("abc",), 5, "abc  "),
        (("日本",), 3, "日…"),
    ],
)
def test_what_is_cut_has_a_mark(pieces, width, expected):
    """A line that is too long ends with a mark, unless only blanks are cut."""
    assert expected == fitted(line(*pieces), width).text


def test_parts_of_a_line_go_to_its_ends():
    """The right part is whole; the left one is cut where there is no room for both."""
    assert "ab     xyz" == spread(line("ab"), line("xyz"), 10).text
    assert "abcde… xyz" == spread(line("abcdefgh"), line("xyz"), 10).text
    assert "abc" == spread(line("abc"), line("much too long"), 10).text


def test_blocks_stand_side_by_side():
    """Blocks of different heights are padded, each to its width."""
    found = beside([[line("a"), line("b")], [line("long text")]], (3, 5), 2)

    assert ["a    long…", "b         "] == [each.text for each in found]


def test_a_text_is_indented_below_its_mark():
    """A text that needs several lines stands beside its mark in all of them."""
    assert ["! one two", "  three"] == [each.text for each in wrapped("one two three", 10, first=Span("! "))]


@given(width=st.integers(20, 250))
def test_a_table_fits_at_every_width(width):
    """Rows and heads of the table of servers have its width, and the columns are in their order."""
    shown = [column for column, _ in placed(COLUMNS, width)]
    lines = table_lines(every_state().servers, COLUMNS, width, mark=lambda name: SORT_MARK if name == "state" else "")

    assert len({columns(row.text) for row in lines}) == 1
    assert columns(lines[0].text) <= width
    assert [column for column in COLUMNS if column in shown] == shown


def test_titles_have_room_for_the_mark_of_the_order():
    """Each column that the table can be sorted by shows its title whole, with the mark."""
    for name in SORTED_BY:
        column = next(each for each in COLUMNS if each.name == name)
        assert len(column.title) < column.width
        assert next_order(name) in {each.name for each, _ in placed(COLUMNS, 80)}


def test_what_is_not_known_is_last_in_every_order():
    """Servers without a number come after all others, the highest is first."""
    now = server().now
    servers = [
        server("none", now=now._replace(requests_waiting=None)),
        server("few", now=now._replace(requests_waiting=0.0)),
        server("many", now=now._replace(requests_waiting=9.0)),
    ]

    assert ["many", "few", "none"] == [each.name for each in arranged(servers, "waiting", "")]
