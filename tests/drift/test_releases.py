# SPDX-License-Identifier: Apache-2.0
"""The inventories of the corpus' releases: the parsers know all of it, and every change between them is found."""

from __future__ import annotations

from collections import defaultdict
from fnmatch import fnmatchcase
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from tests.completeness.left_out import CONSTRUCTED, LINES
from tests.drift.__main__ import findings_text
from tests.drift.changes import family_changes
from tests.drift.findings import findings_of
from tests.drift.inventory import FOLDER, kept_versions, read_inventory, written
from tests.drift.knowledge import is_read, shown_name
from tests.drift.reading import understand
from tests.parsers.releases import RELEASES
from tests.support.yaml_files import load_yaml


KEPT = kept_versions()
EXPECTED = load_yaml((Path(__file__).parent / "expected_changes.yml").read_text(encoding="utf-8"))
"""Written by hand from a study of the releases."""

TRANSFER = "KV Transfer metrics: "


@cache
def inventory(version):
    """Return the inventory of a release."""
    return read_inventory(FOLDER / f"{version}.json")


def periodic(version):
    """Return the formats of a release's statistics."""
    return [each.format for each in inventory(version).messages if each.is_periodic]


def test_each_release_of_the_corpus_has_its_inventory():
    """There is an inventory for each release of which there are logs and pages, and each says of which it is."""
    assert set(RELEASES) <= set(KEPT)
    assert [inventory(version).version for version in KEPT] == KEPT


@pytest.mark.parametrize("version", KEPT)
def test_the_parsers_know_each_release(version):
    """Every family and every statistics line is read, or left out for a reason that tests/completeness names."""
    found = findings_of(inventory(version), inventory(version))

    assert found == [], findings_text(version, found, ())


@pytest.mark.parametrize("pair", list(pairwise(RELEASES)), ids="-".join)
def test_the_changed_families_between_adjacent_releases_are_found(pair):
    """The families that differ are those of a table written by hand, in all that it says and no more."""
    expected = EXPECTED["families"]["-".join(pair)]
    found = defaultdict(set)
    for change in family_changes(*(inventory(version).families for version in pair)):
        name, engine = change.subject.removesuffix(")").split(" (")
        found[f"{change.kind} {engine}"].add(name.removeprefix("vllm:"))

    assert {key: set(names.split()) for key, names in expected.items()} == dict(found)


@pytest.mark.parametrize("pair", EXPECTED["ray"])
def test_changes_on_the_way_to_ray_are_found(pair):
    """New spellings of names, labels and classes that stand in for others are told."""
    older, newer = (set(inventory(version).ray) for version in pair.split("-"))

    assert set(EXPECTED["ray"][pair].get("ray added", ())) <= newer - older
    assert set(EXPECTED["ray"][pair].get("ray removed", ())) <= older - newer
    assert not any("_ec_connector_cls" in fact for fact in inventory("0.33.0").ray)  # Those of encoder caches are not.


@pytest.mark.parametrize("version", RELEASES)
def test_the_statistics_of_each_release_are_extracted(version):
    """The formats are those of a table written by hand: labels, optional parts and their order included."""
    lines = [text for text in periodic(version) if not text.startswith((TRANSFER, "{self."))]

    assert sorted(EXPECTED["statistics"][version]) == sorted(lines)


@pytest.mark.parametrize("version", EXPECTED["transfers"])
def test_the_keys_of_kv_connectors_are_extracted(version):
    """For each connector that a release has, the keys of its line are found."""
    lines = [text.removeprefix(TRANSFER) for text in periodic(version) if text.startswith(TRANSFER)]
    keys = [{part.removesuffix("={}") for part in line.split(", ")} for line in lines if line != "%s"]

    assert sorted(map(sorted, keys)) == sorted(sorted(text.split(", ")) for text in EXPECTED["transfers"][version])


@pytest.mark.parametrize("text", EXPECTED["messages"])
def test_a_message_is_found_in_the_releases_that_print_it(text):
    """It is in the first and in the last release that a table names, not in those around them, and it is understood."""
    first, last, meaning = EXPECTED["messages"][text]
    having = [version for version in RELEASES if text in {each.format for each in inventory(version).messages}]
    known = next(each for each in inventory(first).messages if each.format == text)

    assert having == list(RELEASES[RELEASES.index(first) : RELEASES.index(last) + 1])
    assert meaning in understand(known).meanings


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
