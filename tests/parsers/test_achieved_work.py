# SPDX-License-Identifier: Apache-2.0
"""The line on achieved work, of each era and from its call sites only."""

from __future__ import annotations

import pytest

from vllm_watch_parsers.events import AchievedWork, AdapterChange, Notice
from vllm_watch_parsers.line import parse_line


HEAD = "(APIServer pid=22298) INFO 11-23 01:47:03 "
WORK = AchievedWork("0", 122.7e12, 296.9e9)


def events(text):
    """Return the events of a line."""
    return parse_line(text.encode()).events


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (HEAD + "[perf.py:1249] Engine 000: MFU: 122.7 TF/s/GPU 296.9 GB/s/GPU", WORK),
        (HEAD + "[perf.py:1725] Engine 001: MFU: 122.7 TF/s/device 296.9 GB/s/device", WORK._replace(engine="1")),
        (HEAD + "[v1/metrics/perf.py:1] Engine 000: MFU: 0.0 TF/s/device 0.1 GB/s/device", AchievedWork("0", 0.0, 1e8)),
        ("INFO 11-21 10:51:54 [log_stats.rs:88] MFU: 122.7 TF/s/GPU 296.9 GB/s/GPU", WORK._replace(engine=None)),
    ],
)
def test_a_line_is_read(line, expected):
    """Operations and bytes are per second and device; the prefix names the engine, if there is one."""
    assert events(line) == (expected,)


@pytest.mark.parametrize(
    "line",
    [
        HEAD + "[logger.py:39] Engine 000: MFU: 122.7 TF/s/GPU 296.9 GB/s/GPU",
        HEAD + "[serving.py:39] MFU: 122.7 TF/s/GPU 296.9 GB/s/GPU",
        HEAD + "[perf.py:1249] Engine 000: MFU: 122.7 % 296.9 GB/s/GPU",
        HEAD + "[perf.py:1249] Engine 000: MFU: nan TF/s/GPU 296.9 GB/s/GPU",
    ],
)
def test_another_line_is_not(line):
    """Text that a client sent is printed elsewhere, and a share or `nan` is no rate."""
    assert events(line) == ()


def test_an_absurd_value_is_counted():
    """No device does as much."""
    line = HEAD + "[perf.py:1249] Engine 000: MFU: 99999999999.0 TF/s/GPU 296.9 GB/s/GPU"

    assert events(line) == (Notice("value_out_of_range", "flops_per_second"),)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("[serving.py:226] Loaded new LoRA adapter: name 'sql', path '/secret'", "loaded"),
        ("[openai/serving_models.py:171] Removed LoRA adapter: name 'sql'", "removed"),
    ],
)
def test_adapters_are_counted_without_their_names(message, kind):
    """A name, or a path, is in no event."""
    assert events(HEAD + message) == (AdapterChange(kind),)


def test_an_adapter_in_a_request_is_not_counted():
    """The call site that prints requests prints what clients send."""
    assert events(HEAD + "[logger.py:39] Loaded new LoRA adapter: name 'x', path 'y'") == ()
