# SPDX-License-Identifier: Apache-2.0
"""A report's page needs nothing else, hides nothing from who cannot see it, and stays small."""

from __future__ import annotations

import functools
import re

from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest

from tests.rendering import pages, reports

from vllm_watch.analysis.loadtest.load_test import Report, Timeline
from vllm_watch.analysis.rendering.report_document import report_html


WHOLE = {
    "one run": reports.report(),
    "a sweep": reports.sweep(),
    "hostile names": reports.hostile(),
    "nothing known": reports.bare(),
    "no run": Report(runs=()),
}
ALL = WHOLE | {f"without {name}": each for name, each in reports.emptied()}
every_page = pytest.mark.parametrize("page", ALL, indirect=True)


@functools.cache
def page_of(name):
    """Return the page of one of the reports."""
    return report_html(ALL[name])


@pytest.fixture
def page(request):
    """The page of a report."""
    return page_of(request.param)


def drawings(page):
    """Return the outermost drawings of a page."""
    found, depth, start = [], 0, 0
    for match in re.finditer(r"<svg\b[^>]*?(/?)>|</svg>", page):
        if match[0].startswith("</"):
            depth -= 1
            if not depth:
                found.append(page[start : match.end()])
        elif not match[1]:
            start = start if depth else match.start()
            depth += 1
    return found


def drawing_of(page, key):
    """Return the drawing of a figure."""
    return next(drawing for drawing in drawings(page) if f'"{key}-title"' in drawing)


@every_page
def test_a_page_is_well_formed(page):
    """Every element is closed, no id is there twice, and what refers to an id finds it."""
    root = pages.read(page)
    ids = [node.attributes["id"] for node in root.walk() if "id" in node.attributes]
    named = [node.attributes.get("aria-labelledby", "") for node in root.walk()]
    links = [node.attributes["href"].removeprefix("#") for node in root.find("a")]

    assert len(ids) == len(set(ids))
    assert {each for text in named for each in text.split()} | set(links) <= set(ids)


def test_every_drawing_is_xml():
    """Each drawing of a page is well-formed XML, also with hostile names in it."""
    found = [drawing for name in WHOLE for drawing in drawings(page_of(name))]

    assert len(found) > 40
    assert {"svg"} == {ET.fromstring(drawing).tag for drawing in found}


@every_page
def test_a_page_loads_nothing(page):
    """No attribute and no style names anything outside the page, there is no script, and a policy forbids both."""
    root = pages.read(page)
    values = [value or "" for node in root.walk() for value in node.attributes.values()]
    styles = "".join(node.text for node in root.find("style"))

    assert not root.find("script", "link", "img", "iframe", "object", "image", "use", "base", "form")
    assert not [value for value in values if re.search(r"(?i)^\s*(https?:|//|data:|javascript:|file:)|url\(", value)]
    assert not [name for node in root.walk() for name in node.attributes if name.startswith("on") or name == "style"]
    assert not re.search(r"(?i)@import|url\(|http", styles)
    assert "default-src 'none'" in next(
        node.attributes["content"] for node in root.find("meta") if "http-equiv" in node.attributes
    )


@every_page
def test_a_screen_reader_finds_its_way(page):
    """A page has a language, a title, its landmarks and one first heading; no level of headings is left out."""
    root = pages.read(page)
    levels = [int(node.tag[1]) for node in root.walk() if re.fullmatch("h[1-6]", node.tag)]

    assert "en" == root.find("html")[0].attributes["lang"]
    assert root.find("title")[0].text
    assert [1, 1, 1, 1] == [len(root.find(tag)) for tag in ("header", "main", "footer", "h1")]
    assert 1 == levels[0]
    assert not [pair for pair in pairwise(levels) if pair[1] > pair[0] + 1]


@every_page
def test_every_drawing_is_described(page):
    """Each drawing is an image with a title and a description, and the numbers behind it are in a table."""
    for figure in pages.read(page).find("figure"):
        drawing = next(node for node in figure.find("svg") if "role" in node.attributes)
        title, description = drawing.children[:2]

        assert "img" == drawing.attributes["role"]
        assert ("title", "desc") == (title.tag, description.tag)
        assert title.text
        assert description.text
        assert figure.find("table")


@every_page
def test_every_table_has_heads(page):
    """Every row has a head, every other cell has a column, and the keyboard reaches a table that is too wide."""
    for table in pages.read(page).find("table"):
        rows = table.find("tr")
        heads = [node for node in table.find("th") if node.attributes["scope"] in {"row", "col", "rowgroup"}]
        widths = {sum(int(cell.attributes.get("colspan", 1)) for cell in row.children) for row in rows}

        assert heads == table.find("th")
        assert 1 == len(widths)
        assert all(node.text for node in heads)
        assert "0" == table.parent.attributes["tabindex"]
        assert table.parent.attributes["aria-label"]


def test_a_peak_of_one_scrape_is_seen():
    """However long a run is, its highest value is in the drawing: the axis has room for it and the line reaches it."""
    values = tuple(1.0 if at != 5000 else 97.0 for at in range(7200))
    timeline = Timeline(times=tuple(map(float, range(7200))), values={"requests_waiting": values})
    drawing = drawing_of(
        report_html(reports.report(timeline=timeline, start=0.0, phases=(), events=())), "run-0-timeline"
    )
    path = next(each.get("d") for each in ET.fromstring(drawing).iter("path"))
    ys = [float(y) for y in re.findall(r"\d (-?[\d.]+)", path)]

    assert 84 * (1 - 97 / 100) == pytest.approx(min(ys), abs=0.1)
    assert 1 == sum(y < 40 for y in ys)


def test_a_gap_stays_a_gap():
    """Where nothing is known the line is interrupted, and a value alone between two gaps is a dot."""
    values = (1.0, 2.0, None, 3.0, None, 4.0, 5.0)
    timeline = Timeline(times=tuple(map(float, range(7))), values={"requests_running": values})
    drawing = drawing_of(
        report_html(reports.report(timeline=timeline, start=0.0, phases=(), events=())), "run-0-timeline"
    )
    path = re.search(r'class="line s0" d="([^"]*)"', drawing)[1]

    assert 3 == path.count("M")
    assert 1 == path.count("h0")


def test_a_curve_is_labelled_with_its_loads():
    """Several loads of one configuration are a curve whose points have their load; one run has no curve."""
    curve = drawing_of(page_of("a sweep"), "curve-0")
    labels = [node.text for node in ET.fromstring(curve).iter("text") if node.get("class") == "label"]

    assert ["1", "2", "4", "8", "16", "24", "32", "40"] == labels
    assert "against throughput" not in page_of("one run")
