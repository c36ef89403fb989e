# SPDX-License-Identifier: Apache-2.0
"""The names of engines."""

from __future__ import annotations

from tests.state.test_sources_together import Server


START = b"INFO 11-21 02:35:10 [api_utils.py:233] non-default args: {'model': 'Qwen/Qwen3-8B'}"


def test_a_model_that_was_not_known_yet_is_named_later():
    """A snapshot from before the log's first lines does not keep the model nameless."""
    server = Server(has_metrics=False)
    assert server.engine().key.model_name == ""

    server.log(START)
    assert server.engine().key.model_name == "Qwen/Qwen3-8B"
