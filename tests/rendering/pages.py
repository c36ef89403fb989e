# SPDX-License-Identifier: Apache-2.0
"""A page of HTML as a tree, read strictly: every element is closed where it must be, every attribute is there once."""

from __future__ import annotations

import functools

from html.parser import HTMLParser

from vllm_watch.analysis.rendering.comparisons import comparisons_document
from vllm_watch.analysis.rendering.markdown import render_markdown
from vllm_watch.analysis.rendering.text import render_text


VOID = {"meta", "link", "img", "br", "hr", "input"}


class Node:
    """An element with its attributes, its children and its own text."""

    def __init__(self, tag, attributes, parent):
        self.tag, self.attributes, self.parent = tag, attributes, parent
        self.children, self.texts = [], []

    def walk(self):
        """Yield this element and all in it, in the order of the page."""
        yield self
        for child in self.children:
            yield from child.walk()

    def find(self, *tags):
        """Return all elements of some kinds."""
        return [node for node in self.walk() if node.tag in tags]

    @property
    def text(self):
        """All the text in it."""
        return "".join(text for node in self.walk() for text in node.texts)


class _Reader(HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.root = self.node = Node("", {}, None)

    def handle_starttag(self, tag, attrs):
        assert len(attrs) == len(dict(attrs)), f"an attribute twice in <{tag}>"
        node = Node(tag, dict(attrs), self.node)
        self.node.children.append(node)
        if tag not in VOID:
            self.node = node

    def handle_startendtag(self, tag, attrs):
        assert self.inside("svg") or tag == "svg", f"<{tag}/> outside a drawing"
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert tag == self.node.tag, f"</{tag}> closes <{self.node.tag}>"
        self.node = self.node.parent

    def handle_data(self, data):
        self.node.texts.append(data)

    def inside(self, tag):
        """Whether what is read now is in an element of a kind."""
        node = self.node
        while node is not None and node.tag != tag:
            node = node.parent
        return node is not None


@functools.cache
def read(text):
    """Return the root of a page; an assertion fails where it is not well-formed."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert reader.node is reader.root, f"<{reader.node.tag}> is not closed"
    return reader.root


def comparisons_table(comparisons):
    """Return comparisons as they are on a terminal of 80 columns."""
    return render_text(comparisons_document(comparisons))


def comparisons_markdown(comparisons):
    """Return comparisons as they are in a pull request."""
    return render_markdown(comparisons_document(comparisons))
