# SPDX-License-Identifier: Apache-2.0
"""Inputs that fuzzing found, and a short search for more; ``python -m tests.fuzz`` searches longer, and by chance."""

from __future__ import annotations

import pytest

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fuzz.mutation import structured
from tests.fuzz.runs import MAX_KEPT, fuzz, read_corpus
from tests.fuzz.targets import TARGETS, load
from tests.support.samples import sample


pytestmark = pytest.mark.slow


SEARCH = f"-runs={sample(1_000, whole=4_000)}"
CORPUS = {target: read_corpus(target) for target in TARGETS}


@pytest.mark.parametrize(("target", "name"), [(target, name) for target in TARGETS for name in CORPUS[target]])
def test_what_was_found_stays_mended(target, name):
    """Each kept input, also those that once broke something, is taken as every input is to be."""
    load(target).check(CORPUS[target][name])


@pytest.mark.needs_module("atheris")
@pytest.mark.parametrize("target", TARGETS)
def test_a_short_search_finds_nothing(target, tmp_path):
    """Inputs made by what code they reach, from one seed, break nothing; chance is for `make fuzz`."""
    status = fuzz(target, SEARCH, tmp_path / "findings", seed=1)

    assert (status, list((tmp_path / "findings").iterdir())) == (0, [])


@pytest.mark.parametrize("target", TARGETS)
def test_changes_by_chance_find_nothing(target):
    """Kept inputs, and real lines, pages and files, break nothing when they are changed by chance."""
    module = load(target)
    inputs = [*CORPUS[target].values(), *(seed for seed in module.seeds() if len(seed) <= MAX_KEPT)]
    change = structured(inputs, module.TOKENS)

    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(data=st.sampled_from(inputs), random=st.randoms(use_true_random=False))
    def search(data, random):
        module.check(change(data, random))

    search()
