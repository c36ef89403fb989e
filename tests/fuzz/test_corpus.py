# SPDX-License-Identifier: Apache-2.0
"""Inputs that fuzzing found, and a short search for more; ``python -m tests.fuzz`` searches for longer."""

from __future__ import annotations

import importlib.util

import pytest

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fuzz.mutation import structured
from tests.fuzz.runs import CORPUS, fuzz
from tests.fuzz.targets import TARGETS, load
from tests.support.samples import sample


pytestmark = pytest.mark.slow


SECONDS = sample(2, whole=5)
HAS_ATHERIS = importlib.util.find_spec("atheris") is not None
KEPT = sorted(file for file in CORPUS.glob("*/*") if file.is_file())


@pytest.mark.parametrize("file", KEPT, ids=lambda file: f"{file.parent.name}-{file.name}")
def test_what_was_found_stays_mended(file):
    """Each kept input, also those that once broke something, is taken as every input is to be."""
    load(file.parent.name).check(file.read_bytes())


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_has_a_corpus(target):
    """A search begins where earlier ones ended."""
    assert any(file.parent.name == target for file in KEPT)


@pytest.mark.needs_module("atheris")
@pytest.mark.parametrize("target", TARGETS)
def test_a_short_search_finds_nothing(target, tmp_path):
    """Inputs made by what code they reach, a few seconds for each target, break nothing."""
    status = fuzz(target, SECONDS, tmp_path / "findings")

    assert (status, list((tmp_path / "findings").iterdir())) == (0, [])


@pytest.mark.skipif(HAS_ATHERIS, reason="the search by reached code does this better")
@pytest.mark.parametrize("target", TARGETS)
def test_changes_by_chance_find_nothing(target):
    """Kept inputs changed by chance break nothing."""
    module = load(target)
    inputs = [file.read_bytes() for file in KEPT if file.parent.name == target]
    change = structured(inputs, module.TOKENS)

    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(data=st.sampled_from(inputs), random=st.randoms(use_true_random=False))
    def search(data, random):
        module.check(change(data, random))

    search()
