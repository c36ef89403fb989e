# SPDX-License-Identifier: Apache-2.0
"""What is to be done with a dashboard follows from what is wanted and what is there."""

from __future__ import annotations

import pytest

from tests.grafana.conftest import dashboard, panel

from vllm_watch.cli.grafana.answers import is_grafanas, rejection
from vllm_watch.cli.grafana.diff import json_changes, panel_changes
from vllm_watch.cli.grafana.model import (
    DataSource,
    content,
    digest,
    push_message,
    pushed_digest,
    with_data_source,
)
from vllm_watch.cli.grafana.plan import LastPush, Present, plan_delete, plan_push


WANTED = dashboard()
OLDER = dashboard(panels=[panel(1, "Running")]).model


def pushed(model=WANTED.model, **changes):
    """Return a dashboard as a push of this model left it, with later changes by others."""
    stored = {**model, "id": 7, "version": 3}
    last = LastPush(3, digest(model), stored)
    return Present({**stored, **changes}, 3 + bool(changes), "f", None, "alice", "2026-11-20T09:10:11Z", last)


class TestPush:
    """`plan_push` never overwrites what others made unless told to."""

    def test_absent(self):
        """What is not there is created."""
        assert plan_push(WANTED, None, force=False).kind == "create"

    def test_equal(self):
        """What is there and equal is left alone, whoever put it there."""
        assert plan_push(WANTED, pushed(), force=False).kind == "unchanged"
        assert plan_push(WANTED, pushed()._replace(last_push=None, file="a.json"), force=True).kind == "unchanged"

    def test_an_older_push(self):
        """What an older push left is updated."""
        assert plan_push(WANTED, pushed(OLDER), force=False).kind == "update"

    @pytest.mark.parametrize("force", [False, True])
    def test_what_grafana_makes_of_it(self, force):
        """What Grafana added or migrated is no change: neither something to push nor somebody's edit."""
        migrated = {**WANTED.model, "schemaVersion": 42, "editable": True, "version": 3}
        present = pushed()._replace(model=migrated, last_push=LastPush(3, digest(WANTED.model), migrated))

        assert plan_push(WANTED, present, force=force).kind == "unchanged"
        assert plan_push(dashboard(title="New"), present, force=force).kind == "update"

    @pytest.mark.parametrize(
        ("present", "words"),
        [
            (pushed(title="Mine"), "alice changed it in Grafana on 2026-11-20, after the push that made version 3"),
            (pushed(title="Mine")._replace(changed_by="", changed_at=""), "somebody changed it in Grafana, after"),
            (pushed(tags=["prod"]), "it lacks the tag vllm-watch"),
            (pushed(tags=None), "it lacks the tag vllm-watch"),
            (pushed(OLDER)._replace(last_push=None), "its history has no push by vllm-watch"),
        ],
        ids=["edited", "by nobody known", "tag gone", "no tags", "no push"],
    )
    def test_others(self, present, words):
        """What others made or changed is refused with the reason, and overwritten with force."""
        action = plan_push(WANTED, present, force=False)

        assert action.kind == "refuse"
        assert words in action.why
        assert action.why.endswith("; --force overwrites that")
        assert plan_push(WANTED, present, force=True).kind == "update"

    @pytest.mark.parametrize("force", [False, True])
    def test_provisioned(self, force):
        """What Grafana makes from files is refused also with force."""
        action = plan_push(WANTED, pushed(OLDER)._replace(file="fleet.json"), force=force)

        assert action == ("refuse", "Grafana makes it from the file fleet.json: change or remove it there")


class TestDelete:
    """`plan_delete` never deletes what a push did not make."""

    @pytest.mark.parametrize(
        ("present", "kind", "forced"),
        [
            (None, "absent", "absent"),
            (pushed(), "delete", "delete"),
            (pushed(OLDER), "delete", "delete"),
            (pushed(title="Mine"), "refuse", "delete"),
            (pushed(tags=[]), "refuse", "refuse"),
            (pushed()._replace(last_push=None), "refuse", "refuse"),
            (pushed()._replace(file="fleet.json"), "refuse", "refuse"),
        ],
        ids=["absent", "ours", "older", "edited", "tag gone", "no push", "provisioned"],
    )
    def test_whose_it_is(self, present, kind, forced):
        """Ours goes, what was changed goes with force, and what is another's stays."""
        assert kind == plan_delete(present, force=False).kind
        assert forced == plan_delete(present, force=True).kind


class TestModel:
    """What of a dashboard counts."""

    def test_a_message_is_recognised(self):
        """The message of a push names the digest of what was pushed, whatever the order of its keys."""
        turned = dict(reversed(WANTED.model.items()))

        assert digest(WANTED.model) == pushed_digest(push_message(turned))
        assert digest(WANTED.model) != digest(OLDER)

    @pytest.mark.parametrize("message", ["", "Initial save", "vllm-watch is great", "pushed 0123456789abcdef"])
    def test_other_messages_are_no_push(self, message):
        """What people write as messages is not taken for a push."""
        assert pushed_digest(message) is None

    def test_what_grafana_sets_is_no_content(self):
        """Number, uid, version and iteration are Grafana's."""
        assert content(WANTED.model) == content({**WANTED.model, "id": 9, "uid": "x", "version": 4, "iteration": 1})

    def test_the_data_source(self):
        """A data source becomes the current value of its variable, and of no other."""
        variables = with_data_source(WANTED, DataSource("p1", "Prometheus")).model["templating"]["list"]

        assert {"selected": True, "text": "Prometheus", "value": "p1"} == variables[0]["current"]
        assert WANTED.model["templating"]["list"][1] == variables[1]
        assert {} == WANTED.model["templating"]["list"][0]["current"]


class TestDiff:
    """A difference is shown by panels and by lines."""

    def test_panels(self):
        """Panels are told by title, those inside rows too, and what only moved is counted."""
        row = {"id": 9, "title": "Details", "type": "row", "panels": [panel(10, "Cache")]}
        before = {"panels": [panel(1, "Running"), panel(2, "Waiting"), panel(3, "Old"), row]}
        inside = {**row, "panels": [panel(10, "Cache", unit="percent")]}
        after = {"panels": [panel(5, "Running"), panel(2, "Waiting"), panel(6, "New"), inside]}

        assert ['panel "Old" removed', 'panel "Cache" changed', 'panel "New" added', "1 panel moved"] == list(
            panel_changes(before, after)
        )

    def test_panels_of_one_title(self):
        """Of two panels with one title, one that goes is a change."""
        before = {"panels": [panel(1, "A"), panel(2, "A"), {"type": "text"}]}

        assert ['panel "A" changed', 'panel "text without a title" removed'] == list(
            panel_changes(before, {"panels": [panel(1, "A")]})
        )

    def test_lines_are_cut(self):
        """At most so many lines are shown, with how many there are; long ones end early; none if none are wanted."""
        before, after = {"a": list(range(50))}, {"a": [], "b": "x" * 500}
        every = list(json_changes(before, after, 1000))
        few = list(json_changes(before, after, 4))

        assert every[:4] == few[:4]
        assert f"… and {len(every) - 4} more lines: --diff-lines {len(every)} shows all" == few[4]
        assert max(map(len, every)) == 161
        assert [] == list(json_changes(before, after, 0))
        assert [] == list(json_changes(before, {**before, "version": 3}, 10))


class TestRejection:
    """What Grafana refuses is told as a sentence."""

    @pytest.mark.parametrize(
        ("status", "body", "sentence"),
        [
            (401, {"message": "Expired API key"}, "the token is wrong, expired or revoked (401: Expired API key)"),
            (401, "Unauthorized", "the token is wrong, expired or revoked (401)"),
            (
                403,
                {"message": "You'll need additional permissions to perform this action. Permissions needed: a:b"},
                "the token may not do it (403): give its service account the role Editor, or the permission a:b",
            ),
            (403, {}, "the token may not do it (403): give its service account the role Editor"),
            (
                412,
                {"message": "The dashboard has been changed by someone else", "status": "version-mismatch"},
                "cannot do it (412): somebody changed it meanwhile; nothing was overwritten: push again",
            ),
            (
                409,
                {"message": "Dashboard already exists. Use overwrite flag to update."},
                "cannot do it (409): somebody changed it meanwhile; nothing was overwritten: push again",
            ),
            (
                412,
                {"message": "A dashboard with the same name in the folder already exists", "status": "name-exists"},
                "cannot do it (412): another dashboard has its title in this folder: rename that one",
            ),
            (409, {"message": "please retry"}, "cannot do it (409): please retry"),
            (412, None, "cannot do it (412): it conflicts with what is there"),
            (422, {"message": "alert validation"}, "cannot do it (422: alert validation)"),
            (500, "<html>", "cannot do it (500)"),
        ],
    )
    def test_the_sentence(self, status, body, sentence):
        """It says what was refused and what to do, in Grafana's words where those help."""
        assert sentence == rejection(status, body, "do it")

    @pytest.mark.parametrize(("body", "its"), [({"message": ""}, True), ({}, False), ("<html>", False), (None, False)])
    def test_whose_error_it_is(self, body, its):
        """Grafana's errors have a message."""
        assert its == is_grafanas(body)
