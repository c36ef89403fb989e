# SPDX-License-Identifier: Apache-2.0
"""What `tests/figures.py` counts is there."""

from __future__ import annotations

import pytest

from tests.figures import follow, imports, modules


def test_every_module_of_the_product_is_in_the_graph():
    """Each file is a module, and the command line reaches others."""
    graph = imports()

    assert len(graph) == len(modules("daemon", "parsers"))
    assert graph["vllm_watch.cli.command_line"]


@pytest.mark.slow
@pytest.mark.parametrize("source", ["log", "metrics"])
def test_a_value_is_followed_from_its_source_to_our_metrics(source):
    """What a source says is seen in a parser, in the state and in the exposition, as bytes and as a snapshot."""
    passed, forms = follow(source)

    packages = {name.rpartition(".")[0].rpartition(".")[2] for name in passed}
    assert {"vllm_watch_parsers", "state", "exposition"} <= packages
    assert {"bytes", "ServerSnapshot"} <= set(forms)
