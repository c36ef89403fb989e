# SPDX-License-Identifier: Apache-2.0
"""
deploy/install.sh in an empty root: installed, installed again, upgraded, refused, and taken away.

No network is used: what the environments need comes from the one that runs the tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from pathlib import Path

import pytest

from tests.support.installing import copying_python, link_dependencies, make_wheel
from tests.support.processes import run_command
from tests.support.samples import sample


pytestmark = pytest.mark.slow


DEPLOY = Path(__file__).parents[2] / "deploy"
SCRIPT = DEPLOY / "install.sh"
BROKEN = "raise SystemExit('this release is broken')\n"
STANDARD = ("etc/default", "etc/systemd/system", "opt", "usr/local/bin", "usr/local/share", "var/lib")
"""Folders that every system has."""
SHARED = (
    "bash-completion/completions/vllm-watch",
    "zsh/site-functions/_vllm-watch",
    "fish/vendor_completions.d/vllm-watch.fish",
)
"""Below usr/local/share: what each shell reads."""


ANYBODY = """#!/bin/sh
while case $1 in --*) true ;; *) false ;; esac; do shift; done
exec "$@"
"""
"""Stands for setpriv: nobody but who runs the tests may enter their folders, in which Python is."""


class Machine:
    """A root to install into."""

    def __init__(self, folder):
        self.folder = folder
        self.root = folder / "root"
        for each in STANDARD:
            (self.root / each).mkdir(parents=True)
        (folder / "bin").mkdir()
        (folder / "bin" / "setpriv").write_text(ANYBODY)
        (folder / "bin" / "setpriv").chmod(0o755)
        self.environment = {
            **os.environ,
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "PYTHON": str(copying_python(folder)),
            "PYTHONPATH": str(link_dependencies(folder / "dependencies")),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PIP_NO_INDEX": "1",
            "PIP_NO_DEPS": "1",
            "TMPDIR": str(folder),
        }

    def run(self, *arguments, **environment):
        """Run the script; return the run."""
        return run_command(
            "sh", SCRIPT, "--root", self.root, *map(str, arguments), env={**self.environment, **environment}
        )

    def done(self, *arguments, **environment):
        """Run the script, which must succeed; return what it says."""
        run = self.run(*arguments, **environment)
        assert run.returncode == 0, run.stdout + run.stderr
        return run.stdout

    def contents(self):
        """Return every path with what tells whether it has changed."""
        return {
            str(path.relative_to(self.root)): (path.lstat().st_ino, path.lstat().st_mtime_ns, path.lstat().st_mode)
            for path in self.root.rglob("*")
        }

    def version(self):
        """Return what the program that is linked says."""
        programs = (self.root / "opt/vllm-watch/bin").resolve()
        command = [str(programs / "python"), str(programs / "vllm-watch"), "--version"]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=True).stdout.split()[
            -1
        ]

    def file(self, path):
        """Return a path inside the root."""
        return self.root / path


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """Wheels of two versions, and of three that do not start: at once, with the configuration, and in `check`."""
    folder = tmp_path_factory.mktemp("wheels")
    refusing = "import sys\n\n\ndef main():\n    sys.exit(2 if 'check' in sys.argv else 0)\n"
    lacking = "import sys\n\n\ndef main():\n    if 'check' in sys.argv:\n        import vllm_watch.gone\n"
    return {
        "1.0": make_wheel(folder, "1.0"),
        "2.0": make_wheel(folder, "2.0"),
        "3.0": make_wheel(folder, "3.0", command_line=BROKEN),
        "4.0": make_wheel(folder, "4.0", command_line=refusing),
        "5.0": make_wheel(folder, "5.0", command_line=lacking),
    }


@pytest.fixture
def machine(tmp_path):
    """A machine with nothing on it."""
    return Machine(tmp_path)


@pytest.fixture(scope="module")
def image(tmp_path_factory, wheels):
    """The root of a machine with version 1.0; with whole samples the virtual environment is made and not copied."""
    machine = Machine(tmp_path_factory.mktemp("image"))
    python = sample(machine.environment["PYTHON"], sys.executable)
    machine.done("install", "--wheel", wheels["1.0"], PYTHON=python)
    return machine.root


@pytest.fixture
def equipped(machine, image):
    """A machine with version 1.0, copied: nothing in it knows where it stands."""
    shutil.rmtree(machine.root)
    shutil.copytree(image, machine.root, symlinks=True)
    return machine


@pytest.mark.needs_tool("shellcheck")
def test_the_scripts_are_sound():
    """The shell's linter has nothing to say."""
    scripts = sorted(map(str, DEPLOY.rglob("*.sh")))
    run = run_command("shellcheck", *scripts)

    assert str(SCRIPT) in scripts
    assert run.stdout + run.stderr == ""


def test_it_is_installed_upgraded_and_taken_away(machine, wheels):
    """From an empty root to two versions and back: the second run changes nothing, and in the end nothing is left."""
    empty = set(machine.contents())
    machine.done("install", "--wheel", wheels["1.0"])
    installed = machine.contents()
    again = machine.done("install", "--wheel", wheels["1.0"])

    assert again.splitlines()[-1].startswith("Nothing to do: 1.0-")
    assert machine.contents() == installed
    assert machine.version() == "1.0"
    assert [each for each in SHARED if f"usr/local/share/{each}" not in installed] == []

    configuration = machine.file("etc/vllm-watch/vllm-watch.yml")
    own = configuration.read_text().replace("8000", "8001")
    configuration.write_text(own)
    state = machine.file("var/lib/vllm-watch/checkpoint.json")
    state.parent.mkdir()
    state.write_text("{}")
    machine.done("upgrade", "--wheel", wheels["2.0"])

    assert machine.version() == "2.0"
    assert configuration.read_text() == own
    assert len(list(machine.file("opt/vllm-watch/releases").iterdir())) == 1

    machine.done("uninstall")

    kept = {path for path in machine.contents() if machine.file(path).is_file()}
    assert kept == {"etc/vllm-watch/vllm-watch.yml", "etc/default/vllm-watch", "var/lib/vllm-watch/checkpoint.json"}

    machine.done("uninstall", "--purge")

    assert set(machine.contents()) == empty
    assert machine.done("uninstall") == "Nothing to do: vllm-watch is not installed.\n"


def test_what_is_installed_believes_that_it_stands_where_it_will(equipped, image):
    """Nothing in the root names the root: it can become an image; and the unit starts what is linked."""
    naming = [
        str(path)
        for path in equipped.root.rglob("*")
        if path.is_file() and path.name != "direct_url.json" and str(image).encode() in path.read_bytes()
    ]

    assert naming == []
    assert os.readlink(equipped.file("usr/local/bin/vllm-watch")) == "/opt/vllm-watch/bin/vllm-watch"
    assert equipped.file("opt/vllm-watch/bin/vllm-watch").read_text().startswith("#!/opt/vllm-watch/releases/1.0-")
    assert (
        "ExecStart=/opt/vllm-watch/bin/vllm-watch run"
        in equipped.file("etc/systemd/system/vllm-watch.service").read_text()
    )
    assert equipped.file("etc/vllm-watch/vllm-watch.yml").read_text() == (DEPLOY / "vllm-watch.yml").read_text()


@pytest.mark.parametrize(
    ("version", "reason"), [("3.0", "this release is broken"), ("4.0", ""), ("5.0", "'vllm_watch.gone'")]
)
def test_a_release_that_does_not_start_changes_nothing(equipped, wheels, version, reason):
    """The old version stays, untouched, whether the new one breaks or rejects the configuration, and it is said why."""
    before = equipped.contents()
    run = equipped.run("upgrade", "--wheel", wheels[version])

    assert run.returncode == 1
    assert f"install.sh: {version}-" in run.stderr
    assert "does not start: nothing has changed" in run.stderr
    assert reason in run.stderr
    assert equipped.version() == "1.0"
    after = equipped.contents()
    del before["opt/vllm-watch/releases"], after["opt/vllm-watch/releases"]  # Its time.
    assert after == before


def test_a_dry_run_does_nothing(machine, wheels):
    """It says the steps that a run says, and the root stays as it is."""
    before = machine.contents()
    said = machine.done("install", "--dry-run", "--wheel", wheels["1.0"])
    after = machine.contents()
    done = machine.done("install", "--wheel", wheels["1.0"])

    assert after == before
    assert [line for line in done.splitlines() if not line.startswith("Test whether")] == said.splitlines()
    installed = machine.contents()
    machine.done("uninstall", "--purge", "--dry-run")
    assert machine.contents() == installed


def test_what_is_not_its_own_is_left_alone(equipped):
    """A program of somebody else under the same name stays, as does what stands in the folder besides."""
    equipped.file("opt/vllm-watch/notes").write_text("mine")
    equipped.file("usr/local/bin/vllm-watch").unlink()
    equipped.file("usr/local/bin/vllm-watch").write_text("mine")
    run = equipped.run("uninstall", "--purge")

    assert run.returncode == 1
    assert "contains files that this script did not create" in run.stderr
    assert equipped.file("opt/vllm-watch/notes").exists()
    assert equipped.file("usr/local/bin/vllm-watch").read_text() == "mine"


@pytest.mark.parametrize("command", ["install", "upgrade", "uninstall"])
def test_what_is_installed_otherwise_is_left_alone(equipped, wheels, command):
    """An installation in another folder, or by a package, is neither changed nor removed."""
    what = () if command == "uninstall" else ("--wheel", wheels["1.0"])
    before = equipped.contents()
    elsewhere = equipped.run(command, *what, "--prefix", "/srv/vllm-watch")
    unchanged = equipped.contents()
    package = equipped.file("lib/systemd/system/vllm-watch.service")
    package.parent.mkdir(parents=True)
    package.touch()
    packaged = equipped.run(command, *what)

    assert unchanged == before
    assert (elsewhere.returncode, packaged.returncode) == (1, 1)
    assert "vllm-watch is installed elsewhere: give the --prefix that is in" in elsewhere.stderr
    assert packaged.stderr == "install.sh: vllm-watch is installed as a package: use dpkg or apt\n"


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        ((), 2, "a command is missing"),
        (("install", "upgrade"), 2, "one command at a time"),
        (("install", "--fast"), 2, "unknown: --fast"),
        (("install", "--wheel"), 2, "needs"),
        (("install", "--wheel", "a", "--source", "b"), 2, "--wheel or --source, not both"),
        (("uninstall", "--prefix", "/usr"), 2, "a folder of its own"),
        (("install", "--wheel", "other-1.0-py3-none-any.whl"), 1, "is not a wheel of vllm-watch"),
        (("install", "--wheel", "vllm_watch-1.0-py3-none-any.whl"), 1, "no such file"),
        (("install", "--source", "/usr"), 1, "is not a source tree"),
    ],
    ids=str,
)
def test_wrong_usage_is_said_in_a_sentence(machine, arguments, status, sentence):
    """Nothing is touched, and one sentence says what is wrong."""
    before = machine.contents()
    run = machine.run(*arguments)

    assert (run.returncode, machine.contents()) == (status, before)
    assert sentence in run.stderr.splitlines()[0]


def test_an_upgrade_needs_an_installation_and_an_install_none(equipped, wheels):
    """Neither command does the other's work."""
    install = equipped.run("install", "--wheel", wheels["2.0"])
    equipped.done("uninstall")
    upgrade = equipped.run("upgrade", "--wheel", wheels["1.0"])

    assert (upgrade.returncode, install.returncode) == (1, 1)
    assert "use install" in upgrade.stderr
    assert "use upgrade" in install.stderr


@pytest.mark.needs_root
@pytest.mark.needs_tool("setpriv")
def test_a_python_that_only_some_may_run_is_refused(machine, wheels):
    """An interpreter in a folder of one user's is of no use to the service: it is named, before anything is done."""
    machine.folder.chmod(0o700)
    before = machine.contents()
    run = machine.run("install", "--wheel", wheels["1.0"], PATH=os.environ["PATH"])

    assert (run.returncode, run.stdout, machine.contents()) == (1, "", before)
    assert f"only some users may run {machine.environment['PYTHON']}, and the service may not" in run.stderr
