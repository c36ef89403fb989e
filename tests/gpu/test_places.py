# SPDX-License-Identifier: Apache-2.0
"""Where GPUs are, by the files of NVIDIA's driver."""

from __future__ import annotations

import pytest
import structlog

from vllm_watch.daemon.gpu.places import FOLDER, GpuPlaces, main
from vllm_watch.daemon.gpu.reader import Said


UUID = "GPU-71ec7ba1-7ed1-4b5c-9b69-bb7a2f3e7f3b"
INFORMATION = """\
Model: \t\t NVIDIA H100 80GB HBM3
IRQ:   \t\t 291
GPU UUID: \t {}
Video BIOS: \t 96.00.74.00.01
Bus Type: \t PCIe
Bus Location: \t 0000:9b:00.0
Device Minor: \t 0
GPU Excluded:\t No
"""


class Process:
    """One that says these lines, once."""

    def __init__(self, *lines):
        self.lines = lines
        self.is_closed = False

    def take(self):
        """Return them."""
        lines, self.lines = self.lines, ()
        return [Said(line, 1.0) for line in lines]

    def close(self):
        """Note it."""
        self.is_closed = True


def driver(folder, **gpus):
    """Write the files of GPUs, by their buses."""
    for bus, uuid in gpus.items():
        path = folder / FOLDER / f"0000:{bus}:00.0" / "information"
        path.parent.mkdir(parents=True)
        path.write_text(INFORMATION.format(uuid))


def test_the_place_and_the_uuid_of_each_gpu_are_printed(tmp_path, capsys):
    """A GPU that was not used since the driver was loaded has no UUID yet; a file that is not there is passed over."""
    driver(tmp_path, **{"9b": UUID, "9c": "GPU-????????-????-????-????-????????????"})
    (tmp_path / FOLDER / "0000:9d:00.0" / "information").mkdir(parents=True)
    main(str(tmp_path))

    assert capsys.readouterr().out == f"0000:9b:00.0 {UUID}\n"


def test_the_files_are_read_once_by_another_process(tmp_path):
    """What it prints is taken as it comes, and nothing that is no place with a UUID."""
    driver(tmp_path, **{"9b": UUID})
    process, started = Process(b"0000:9B:00.0 " + UUID.encode(), b"a b", b"0000:9c:00.0 GPU-1", b"\xff"), []
    places = GpuPlaces(lambda now: started.append(now) or process, str(tmp_path))
    assert places.take() == {}
    for _ in range(2):
        places.ask(lambda: 1.0)

    assert len(started) == 1
    assert [places.take(), places.take()] == [{"0000:9b:00": UUID}, {}]
    places.close()
    assert process.is_closed


@pytest.mark.parametrize("has_driver", [True, False])
def test_a_machine_without_the_driver_starts_nothing(tmp_path, has_driver):
    """Neither is it wrong if no process can be started: the log says so."""

    def fail(_now):
        raise OSError("no memory")

    if has_driver:
        driver(tmp_path, **{"9b": UUID})
    places = GpuPlaces(fail, str(tmp_path))
    with structlog.testing.capture_logs() as logged:
        places.ask(lambda: 1.0)

    assert [each["event"] for each in logged] == ["gpu.places_not_read"] * has_driver
    assert places.take() == {}
    places.close()
