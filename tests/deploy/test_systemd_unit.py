# SPDX-License-Identifier: Apache-2.0
"""The systemd units and what goes with them, judged by systemd's own tools, which need no running systemd."""

from __future__ import annotations

import re
import shutil

from pathlib import Path

import pytest

from tests.support.processes import run_command


ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy" / "systemd" / "vllm-watch.service"
EXAMPLES = sorted(UNIT.parent.glob("*.service.d/*.conf"))
EXPOSURE = 1.5
"""systemd calls less than 2 "OK"; a unit without any restriction has 9.6."""
EXPOSURE_WITH_EXAMPLES = 1.8
"""With the GPUs' devices, and other users' processes to see whose a GPU is."""

pytestmark = pytest.mark.needs_tool("systemd-analyze")


def analyze(*arguments):
    """Return what systemd-analyze says, and its exit status."""
    run = run_command("systemd-analyze", "--no-pager", *arguments)
    return run.stdout + run.stderr, run.returncode


@pytest.fixture
def unit(tmp_path):
    """A copy of the unit that starts a program which is here, beside the log's units and one that stands for vLLM's."""
    for each in UNIT.parent.glob("vllm-log.*"):
        shutil.copy(each, tmp_path)
    (tmp_path / "vllm.service").write_text("[Service]\nExecStart=/bin/true\n")
    copy = tmp_path / UNIT.name
    copy.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", UNIT.read_text(), flags=re.MULTILINE))
    return copy


def with_examples(unit, *examples):
    """Put drop-ins beside the units that they are for."""
    for example in examples:
        folder = unit.parent / example.parent.name
        folder.mkdir(exist_ok=True)
        shutil.copy(example, folder)


def test_systemd_understands_every_line(unit):
    """D6: systemd finds nothing to complain of, no unknown key and no value it ignores."""
    assert ("", 0) == analyze("verify", str(unit))


def test_the_service_may_do_little(unit):
    """D6: what the service could touch if it were taken over is little, by systemd's own measure."""
    said, _ = analyze("security", "--offline=true", str(unit))

    assert float(re.search(r"Overall exposure level for \S+: ([\d.]+)", said)[1]) <= EXPOSURE


def test_the_unit_fits_the_daemon():
    """D6: the unit waits for READY, hears the main process only, and does not try a bad configuration again."""
    said = dict(line.split("=", 1) for line in UNIT.read_text().splitlines() if re.match(r"\w+=", line))

    assert ("notify", "main", "2", "/bin/kill -HUP $MAINPID") == (
        said["Type"],
        said["NotifyAccess"],
        said["RestartPreventExitStatus"],
        said["ExecReload"],
    )


def test_only_where_gpus_are_read_is_a_process_left_alone():
    """A process in a call of the driver is not sent SIGKILL; without GPUs systemd ends all that the daemon started."""
    modes = {path.stem: "\nKillMode=process\n" in path.read_text() for path in (UNIT, *EXAMPLES)}

    assert [name for name, is_left in modes.items() if is_left] == ["40-gpu"]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_systemd_understands_each_example(unit, example):
    """Each drop-in is one that systemd takes for its unit, and a mistake in it would be told."""
    with_examples(unit, example)
    of = unit.parent / example.parent.name.removesuffix(".d")

    assert analyze("verify", str(of)) == ("", 0)
    with (unit.parent / example.parent.name / example.name).open("a") as file:
        file.write("[Service]\nNoSuchKey=1\n")
    assert "NoSuchKey" in analyze("verify", str(of))[0]


@pytest.mark.parametrize("name", ["vllm-log.socket", "vllm-log.service"])
def test_systemd_understands_the_logs_units(unit, name):
    """The pipe and its writer have no unknown key."""
    assert analyze("verify", str(unit.parent / name)) == ("", 0)


def test_no_example_opens_the_service(unit):
    """With all examples at once the service may still do little, and the log's writer too."""
    with_examples(unit, *EXAMPLES)
    for name in (UNIT.name, "vllm-log.service"):
        said, _ = analyze("security", "--offline=true", str(unit.parent / name))
        assert float(re.search(r"Overall exposure level for \S+: ([\d.]+)", said)[1]) <= EXPOSURE_WITH_EXAMPLES


def test_the_unit_takes_its_variables_from_the_shipped_file():
    """Each variable that /etc/default/vllm-watch names is one that the unit knows and uses, with the same default."""
    text = UNIT.read_text()
    named = dict(re.findall(r"(?m)^#(\w+)=(.*)$", (UNIT.parent / "vllm-watch.default").read_text()))
    (defaults,) = re.findall(r"(?m)^Environment=(.*)$", text)

    assert named == dict(each.split("=", 1) for each in defaults.split())
    assert set(re.findall(r"\$\{?(VLLM_\w+)", text)) == set(named)
    assert "EnvironmentFile=-/etc/default/vllm-watch\n" in text


@pytest.mark.needs_root
@pytest.mark.needs_tool("systemd-tmpfiles")
def test_the_logs_folder_is_made(tmp_path):
    """The example for systemd-tmpfiles makes the folder and the file, which a group may read and nobody else."""
    for name, line in (("passwd", "vllm:x:4711:4712::/:/bin/false\n"), ("group", "vllm:x:4712:\n")):
        (tmp_path / "etc").mkdir(exist_ok=True)
        (tmp_path / "etc" / name).write_text(line)
    conf = UNIT.parent / "tmpfiles.d" / "vllm.conf"
    for _ in range(2):
        run = run_command("systemd-tmpfiles", "--create", f"--root={tmp_path}", conf)
        assert (run.stderr, run.returncode) == ("", 0)
    folder = (tmp_path / "var/log/vllm").stat()
    file = (tmp_path / "var/log/vllm/vllm.log").stat()

    assert (oct(folder.st_mode), folder.st_uid, folder.st_gid) == ("0o40750", 4711, 4712)
    assert (oct(file.st_mode), file.st_uid, file.st_gid) == ("0o100640", 4711, 4712)
