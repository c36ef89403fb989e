# SPDX-License-Identifier: Apache-2.0
"""Flags as rows, where servers of one model differ, what a start changed, and the lines of limits."""

from __future__ import annotations

import pytest

from tests.alerts.replay import STEP, evaluated_together
from tests.dashboards.replayed import given
from tests.dashboards.shipped import UIDS, dashboard


STEPS = 60 // STEP
FLEET, CAPACITY, SERVER = "vllm-watch-fleet", "vllm-watch-capacity", "vllm-watch-server"

NEEDS_PROMTOOL = pytest.mark.needs_tool("promtool")


def of_server(server, more=""):
    """Return the labels of a server's series."""
    return f'instance="a:1",job="vllm-watch",server="{server}"{more}'


def configured(server, dtype, batched, *, model="m", backend="FLASH_ATTN"):
    """Return the series of one server's flags; an empty value is not known."""
    labels = of_server(server, f',model_name="{model}"')
    return {
        f'vllm_watch_server_config_info{{{labels},dtype="{dtype}",attention_backend="{backend}",config="0a"}}': (
            ["1"] * STEPS
        ),
        f'vllm_watch_max_batched_tokens{{{labels},engine="0"}}': [batched] * STEPS,
        f'vllm_watch_server_info{{{labels},version="0.32.0",engine_generation="v1"}}': ["1"] * STEPS,
    }


def rows(uid, title, series):
    """Return how many servers are alike, by server, flag and value of each row of a table of flags."""
    found = list(given(uid, title, "Servers alike", series, STEPS).values())[-1]
    return {
        tuple(dict(labels)[name] for name in ("server", "_flag", "_value")): alike for labels, alike in found.items()
    }


@NEEDS_PROMTOOL
def test_each_known_flag_has_a_row():
    """Texts, numbers and the version are rows, by the names of the flags; what nobody says is left out."""
    found = rows(CAPACITY, "Flags", configured("s", "bfloat16", "8192", backend=""))

    assert found == {
        ("s", "dtype", "bfloat16"): 1,
        ("s", "max-num-batched-tokens", "8192"): 1,
        ("s", "version", "0.32.0"): 1,
    }


@NEEDS_PROMTOOL
def test_servers_of_one_model_differ_in_what_both_say():
    """Only flags with two values among the servers of a model are listed, and one that is not known is no value."""
    series = {
        **configured("s", "bfloat16", "2048"),
        **configured("t", "bfloat16", "8192", backend=""),
        **configured("v", "bfloat16", "8192"),
        **configured("u", "float16", "512", model="other"),
    }

    assert rows(FLEET, "Flags in which servers of one model differ", series) == {
        ("s", "max-num-batched-tokens", "2048"): 1,
        ("t", "max-num-batched-tokens", "8192"): 2,
        ("v", "max-num-batched-tokens", "8192"): 2,
    }


def changes(uid, language="en"):
    """Return the annotation of changed flags."""
    wanted = {"en": "Changed flags", "zh": "参数变更"}[language]
    (found,) = (each for each in dashboard(uid, language)["annotations"]["list"] if each["name"] == wanted)
    return found


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("uid", UIDS)
def test_every_dashboard_marks_changed_flags(uid, language):
    """A mark stands at the time of the start, and says of which server the flag is and what it was and is."""
    found = changes(uid, language)

    assert found["useValueForTime"]
    assert found["titleFormat"] == "{{server}}: {{flag}} {{from}} → {{to}}"


@NEEDS_PROMTOOL
def test_a_mark_says_what_a_flag_was():
    """A flag that was not set before, or is not now, has a sign in place of a value; the time is in milliseconds."""
    name, start = "vllm_watch_server_config_change_timestamp_seconds", "1795250000"
    series = {
        f'{name}{{{of_server("s")},flag="{flag}",from="{old}",to="{new}"}}': [start] * STEPS
        for flag, old, new in (("max-num-batched-tokens", "2048", "8192"), ("enforce-eager", "", "true"))
    }
    expr = changes(SERVER)["expr"].replace("$daemon", ".*").replace("$server", ".*")
    (found,) = evaluated_together(series, STEPS, {expr}).values()
    marks = {tuple(dict(labels)[each] for each in ("flag", "from", "to")): at for labels, at in found[30].items()}

    assert marks == {
        ("max-num-batched-tokens", "2048", "8192"): 1795250000000,
        ("enforce-eager", "(-)", "true"): 1795250000000,
    }


@NEEDS_PROMTOOL
@pytest.mark.parametrize(
    ("title", "name", "series"),
    [
        ("Tokens per step", "limit", "max_batched_tokens"),
        ("Prompt and answer lengths", "most together", "max_model_len_tokens"),
    ],
)
def test_a_limit_is_a_line_in_the_panel_that_it_limits(title, name, series):
    """Engines of a server have one limit each, which holds for a step or a request of any of them."""
    engines = {
        f'vllm_watch_{series}{{{of_server("s")},model_name="m",engine="{engine}"}}': ["4096"] * STEPS
        for engine in ("0", "1")
    }

    assert list(given(SERVER, title, name, engines, STEPS)[30].values()) == [4096]


def slow(batch, ratio, *, context="1025-2048", past="week"):
    """Return the ratio of an engine's steps of one kind to its past."""
    classes = f'batch_class="{batch}",context_class="{context}",prompt_class="0",past="{past}"'
    labels = of_server("s", f',model_name="m",engine="0",config="0a",version="0.32.0",{classes}')
    return {f"engine:vllm_watch_slower_ratio{{{labels}}}": [ratio] * STEPS}


@NEEDS_PROMTOOL
def test_slowness_is_told_by_batch_size():
    """Of a batch size it is the median of its contexts, compared with the past that makes it the slower."""
    series = {
        **slow("2-4", "1.0"),
        **slow("5-8", "1.2"),
        **slow("5-8", "1.4", context="2049-4096"),
        **slow("5-8", "1.1", past="first day"),
    }
    found = given(SERVER, "Step time compared with its own past", "Batch {{batch_class}}", series, STEPS)[30]

    by_batch = {dict(labels)["batch_class"]: ratio for labels, ratio in found.items()}
    assert by_batch == {"2-4": 1, "5-8": pytest.approx(1.3)}
