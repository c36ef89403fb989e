# SPDX-License-Identifier: Apache-2.0
"""The dashboards in the package."""

from __future__ import annotations

import pytest

from vllm_watch.cli.grafana.push import packaged


UIDS = {
    f"vllm-watch-{name}"
    for name in ("fleet", "server", "spec-decode", "capacity", "kv-transfer", "sources", "load-test")
}


@pytest.mark.parametrize("language", ["en", "zh"])
def test_all_dashboards_are_in_the_package(language):
    """An installed vllm-watch has the seven dashboards in both languages, under the uids that alerts link to."""
    assert {dashboard["uid"] for dashboard in packaged(language)} == UIDS


def test_the_languages_differ():
    """The Chinese set is not the English one; a board that is not translated yet has its English title."""
    english, chinese = ({each["uid"]: each["title"] for each in packaged(language)} for language in ("en", "zh"))
    assert any(english[uid] != chinese[uid] for uid in UIDS)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_all_are_pushed_and_then_unchanged(command, grafana, language):
    """The packaged dashboards go into a Grafana, and a second push writes nothing."""
    command.dashboards = packaged(language)

    first = command("push", grafana.url)
    second = command("push", grafana.url)

    assert (first.status, len(first.lines("created"))) == (0, len(UIDS))
    assert (second.status, len(second.lines("unchanged"))) == (0, len(UIDS))
