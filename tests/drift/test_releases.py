# SPDX-License-Identifier: Apache-2.0
"""The inventories of the corpus' releases: the parsers know all that they have."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache

import pytest

from tests.completeness.left_out import CONSTRUCTED, LINES
from tests.drift.__main__ import findings_text
from tests.drift.findings import findings_of
from tests.drift.inventory import FOLDER, kept_versions, read_inventory, written
from tests.drift.knowledge import is_read, shown_name
from tests.drift.reading import understand
from tests.parsers.releases import RELEASES


KEPT = kept_versions()


@cache
def inventory(version):
    """Return the inventory of a release."""
    return read_inventory(FOLDER / f"{version}.json")


def test_each_release_of_the_corpus_has_its_inventory():
    """There is an inventory for each release of which there are logs and pages, and each says of which it is."""
    assert set(RELEASES) <= set(KEPT)
    assert [inventory(version).version for version in KEPT] == KEPT


@pytest.mark.parametrize("version", KEPT)
def test_the_parsers_know_each_release(version):
    """Every family and every statistics line is read, or left out for a reason that tests/completeness names."""
    found = findings_of(inventory(version), inventory(version))

    assert found == [], findings_text(version, found, ())


def test_the_lists_of_what_is_left_out_are_closed():
    """Every pattern leaves something out that an inventory has and no parser reads; delete those named here."""
    families = [family for version in KEPT for family in inventory(version).families if not is_read(family)]
    names = {name for family in families for name in (family.name, shown_name(family))}
    lines = set()
    for version in KEPT:
        for each in inventory(version).messages:
            if each.is_periodic:
                lines |= {each.format} if not understand(each).meanings else set(understand(each).missing)

    assert [pattern for pattern in CONSTRUCTED if not any(fnmatchcase(name, pattern) for name in names)] == []
    assert [pattern for pattern in LINES if not any(fnmatchcase(line, pattern) for line in lines)] == []


@pytest.mark.parametrize("version", KEPT)
def test_an_inventory_is_written_as_it_is_read(version):
    """The command writes an inventory in one way only, sorted, so that a difference between two is one of facts."""
    assert (FOLDER / f"{version}.json").read_text(encoding="utf-8") == written(inventory(version))
