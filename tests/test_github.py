# SPDX-License-Identifier: Apache-2.0
"""What GitHub and pre-commit read has the form that they expect."""

from __future__ import annotations

import re
import subprocess
import sys

from pathlib import Path

import pytest

from tests.support.waiting import SECONDS
from tests.support.yaml_files import load_yaml


pytest.importorskip("check_jsonschema", reason="the schemas come with the group deploy")

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
SCHEMAS = {
    "vendor.github-workflows": sorted((GITHUB / "workflows").glob("*.yml")),
    "vendor.github-issue-config": [GITHUB / "ISSUE_TEMPLATE" / "config.yml"],
    "vendor.github-issue-forms": sorted(
        path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml"
    ),
}


@pytest.mark.parametrize("schema", SCHEMAS)
def test_each_file_has_its_form(schema):
    """Workflows and issue forms are valid by their schemas."""
    assert SCHEMAS[schema]
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *map(str, SCHEMAS[schema])],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )

    assert done.returncode == 0, done.stdout


def test_actions_have_a_pinned_version():
    """Each action is named with its major version, and the workflow has no rights but reading."""
    for path in SCHEMAS["vendor.github-workflows"]:
        text = path.read_text()
        assert re.findall(r"uses: (\S+)", text) == re.findall(r"uses: (actions/[a-z-]+@v\d+)", text)
        assert load_yaml(text)["permissions"] == {"contents": "read"}


def test_pre_commit_runs_what_make_lint_runs():
    """The hooks are those of `make lint`, from the same .venv: nothing is downloaded."""
    (repository,) = load_yaml((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    lint = re.search(r"(?m)^lint:.*\n((?:\t.+\n)+)", (ROOT / "Makefile").read_text())[1]

    assert repository["repo"] == "local"
    assert all(hook["language"] == "system" for hook in repository["hooks"])
    for hook, command in zip(repository["hooks"], lint.replace("$(BIN)", ".venv/bin").splitlines(), strict=True):
        assert hook["entry"].split()[0] == command.split()[0]
