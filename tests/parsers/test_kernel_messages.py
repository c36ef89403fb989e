# SPDX-License-Identifier: Apache-2.0
"""The kernel's messages about GPUs, of several generations of drivers, and others that resemble them."""

from __future__ import annotations

import pytest

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.parsers.kernel_lines import ERRORS, LINES, NAMES, OTHERS, UUID, message_of
from tests.support.samples import sample
from tests.support.waiting import computes_at_most

from vllm_watch_parsers.kernel_messages import (
    BY_CODE,
    XID_ACTIONS,
    XID_CLASSES,
    XID_CODES,
    GpuError,
    GpuUuid,
    KernelMessages,
    pci_address,
)


@pytest.mark.parametrize("line", ERRORS, ids=[line.driver for line in ERRORS])
def test_an_error_has_its_place_and_code(line):
    """Each driver's line gives the place, with numbers as the kernel writes them, and a code of the table."""
    found = KernelMessages().parse(line.message)

    assert (line.pci, line.code) == (found.pci, found.code)
    assert line.code in BY_CODE


@pytest.mark.parametrize("message", OTHERS)
def test_other_messages_are_no_errors(message):
    """An all-clear, a false total, and a line that only quotes an error count nothing."""
    assert KernelMessages().parse(message) is None


@pytest.mark.parametrize(("message", "pci"), NAMES.items())
def test_a_line_tells_which_gpu_is_where(message, pci):
    """The driver names the GPU at a place before its first error."""
    assert KernelMessages().parse(message) == GpuUuid(pci, UUID)


def test_numbers_are_kept():
    """The number of an Xid that the table lacks, and that of an NVSwitch's error, are there to be logged."""
    assert KernelMessages().parse(message_of("unknown")).number == 987
    assert KernelMessages().parse(message_of("a switch")).number == 20009


def test_a_line_that_is_broken_in_three_is_one_error():
    """A GPU that fell off the bus before its driver was ready is named in one line and reported in the third."""
    messages = KernelMessages()
    lines = message_of("off the bus, in one record").split("\n")

    assert [None, None, GpuError("0000:b3:00", "79")] == [messages.parse(line) for line in lines]
    assert messages.parse(lines[2]) is None
    assert [None, None, None, None] == [messages.parse(line) for line in (lines[0], "NVRM: a", "NVRM: b", lines[2])]


def test_a_total_is_news_only_when_it_has_grown():
    """AMD's driver prints its totals whenever somebody asks for them."""
    messages = KernelMessages()
    line = "amdgpu 0000:c3:00.0: amdgpu: socket: 0, die: 1, {} uncorrectable hardware errors detected in {} block"
    printed = [(2, "umc"), (2, "umc"), (2, "gfx"), (3, "umc"), (3, "umc"), (0, "umc"), (1, "gfx")]
    found = [messages.parse(line.format(*each)) is not None for each in printed]

    assert found == [True, False, True, True, False, False, False]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("00000000:9B:00.0", "0000:9b:00"),
        ("PCI:0000:9b:00", "0000:9b:00"),
        ("0000:9b:00.0", "0000:9b:00"),
        ("00010000:9B:00.0", "10000:9b:00"),
        ("GPU-efbdfde9-5798-a6e7-4c46-12518fa15375", ""),
        ("0", ""),
    ],
)
def test_addresses_are_compared_as_numbers(text, address):
    """The driver's library prints eight digits of the domain, the kernel four."""
    assert pci_address(text) == address


def test_each_code_is_there_once_with_what_to_do():
    """The table has no code twice, each class has an action, and each class is used."""
    assert len(BY_CODE) == len(XID_CODES)
    assert set(XID_CLASSES) == set(XID_ACTIONS) == {each.group for each in XID_CODES}


@pytest.mark.parametrize(
    ("group", "numbers"),
    [
        ("app", [8, 13, 31, 69, 94, 101, 130, 139, 142]),
        ("follow", [43, 45, 63, 92]),
        ("reset", [46, 48, 62, 64, 95, 109, 119, 120, 140, 155, "154_reset"]),
        ("reboot", [79, 167, "154_reboot"]),
        ("link", [74, 144, 149, 150]),
        ("verdict", [154]),
        ("check", [54, 168, 170]),
    ],
)
def test_codes_are_in_the_class_of_nvidia_s_catalog(group, numbers):
    """What to do follows from the number."""
    assert {group} == {BY_CODE[str(number)].group for number in numbers}


@pytest.mark.slow
@settings(max_examples=sample(60, whole=1000), deadline=None)
@given(st.lists(st.one_of(st.text(), st.sampled_from([line.message for line in LINES])), max_size=4), st.data())
def test_every_message_is_an_error_of_the_table_or_nothing(parts, data):
    """Whatever is cut out of messages and put together: nothing fails, and no code or place is made up."""
    messages = KernelMessages()
    for text in ("".join(parts), *parts):
        begin = data.draw(st.integers(0, len(text)))
        found = messages.parse(text[begin:])
        if isinstance(found, GpuError):
            assert found.code in BY_CODE
            assert found.pci in {"", pci_address(found.pci)}


@pytest.mark.slow
@pytest.mark.parametrize("line", LINES, ids=[line.driver for line in LINES])
def test_no_message_is_slow(line):
    """The longest record of the kernel, made of the pieces of a message again and again, takes no time."""
    whole = line.message or "NVRM: "
    with computes_at_most(30):
        for end in range(1, len(whole)):
            KernelMessages().parse(whole[:end] + (whole[max(end - 8, 0) : end] * 8192)[:8192])
