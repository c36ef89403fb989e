# SPDX-License-Identifier: Apache-2.0
"""Where GPUs are, by the files of NVIDIA's driver."""

from __future__ import annotations

from tests.support.waiting import until

from vllm_watch.daemon.gpu.places import FOLDER, GpuPlaces


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


def driver(folder, **gpus):
    """Write the files of GPUs, by their buses."""
    for bus, uuid in gpus.items():
        path = folder / FOLDER / f"0000:{bus}:00.0" / "information"
        path.parent.mkdir(parents=True)
        path.write_text(INFORMATION.format(uuid))


def test_the_place_and_the_uuid_of_each_gpu_are_taken_once(tmp_path):
    """A GPU that was not used since the driver was loaded has no UUID yet; a file that is not there is passed over."""
    driver(tmp_path, **{"9b": UUID, "9c": "GPU-????????-????-????-????-????????????"})
    (tmp_path / FOLDER / "0000:9d:00.0" / "information").mkdir(parents=True)
    places = GpuPlaces(str(tmp_path))
    assert places.take() == {}
    for _ in range(2):
        places.ask()

    assert until(places.take) == {"0000:9b:00": UUID}
    assert places.take() == {}


def test_a_machine_without_the_driver_has_none(tmp_path):
    """Nothing is read where there are no such files."""
    places = GpuPlaces(str(tmp_path))
    places.ask()

    assert places.take() == {}
