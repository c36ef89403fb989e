# SPDX-License-Identifier: Apache-2.0
"""What Grafana refuses is a sentence."""

from __future__ import annotations

import pytest

from tests.support.needs import without


client = pytest.importorskip("vllm_watch.cli.grafana.client", reason=without("grafana_client"))


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
            (409, {"message": "please retry"}, "cannot do it (409: please retry)"),
            (422, {"message": "alert validation"}, "cannot do it (422: alert validation)"),
            (500, "<html>", "cannot do it (500)"),
        ],
    )
    def test_the_sentence(self, status, body, sentence):
        """It says what was refused and what to do, in Grafana's words where those help."""
        assert sentence == client.rejection(status, body, "do it")

    @pytest.mark.parametrize(("body", "its"), [({"message": ""}, True), ({}, False), ("<html>", False), (None, False)])
    def test_whose_error_it_is(self, body, its):
        """Grafana's errors have a message."""
        assert its == client.is_grafanas(body)
