# SPDX-License-Identifier: Apache-2.0
"""The image, as far as it can be judged without a container engine: what goes into it, and how its command behaves."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
import zipfile

from pathlib import Path

import pytest

from tests.support.leftovers import inherited
from tests.support.processes import as_nobody, run_command

import vllm_watch


ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy" / "container" / "Dockerfile"


def instructions():
    """Return the Dockerfile's instructions, each as its name and the rest, of both stages."""
    text = re.sub(r"^\s*#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    return [tuple(line.split(None, 1)) for line in re.sub(r"\\\n\s*", "", text).splitlines() if line.strip()]


def of_the_image(name):
    """Return the rest of the last instruction of a name."""
    return [rest for instruction, rest in instructions() if instruction == name][-1]


def wheel_files(tree, into):
    """Build a wheel of a tree and return the names of the files in it."""
    run_command(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", into, text=False, check=True, cwd=tree)
    (wheel,) = into.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.mark.needs_module("hatchling")
def test_the_context_has_all_that_the_package_is_made_of(tmp_path):
    """A wheel of what .dockerignore lets through has the same files as one of the whole tree."""
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    kept = [line[1:] for line in lines if line[0] == "!"]
    assert ["*", *(f"!{path}" for path in kept), "**/__pycache__", "**/*.py[co]"] == lines

    context = tmp_path / "context"
    for path in kept:
        source = ROOT / path
        if source.is_dir():
            shutil.copytree(source, context / path, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            context.mkdir(exist_ok=True)
            shutil.copy(source, context / path)

    whole = wheel_files(ROOT, tmp_path / "whole")
    assert len(whole) > 100
    documents = ("analysis/comparison/COMPARING", "analysis/advice/ADVISING")
    assert whole >= {f"vllm_watch/{name}.md" for name in documents}
    assert whole == wheel_files(context, tmp_path / "part")


def test_the_images_are_pinned_and_the_tag_is_the_version():
    """Both stages have one image of a full version, and the command that builds ours names this version."""
    bases = {rest.split()[0] for name, rest in instructions() if name == "FROM"}

    assert len(bases) == 1
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", bases.pop())
    assert {vllm_watch.__version__} == set(re.findall(r"vllm-watch:(\d\S+)", DOCKERFILE.read_text()))


def test_the_image_runs_as_a_number_that_owns_its_state():
    """The user is numeric and not root, the folder of the checkpoint is its own, and the port is the daemon's."""
    user = of_the_image("USER")
    uid, gid = map(int, user.split(":"))

    assert min(uid, gid) > 0
    assert f"--owner {uid} --group {gid} --mode 0700 {of_the_image('VOLUME')}" in of_the_image("RUN")
    assert json.loads(of_the_image("CMD"))[-1] == f"0.0.0.0:{of_the_image('EXPOSE')}"


# A container in short: no network but loopback, and nothing that can be written but the state.
_CONTAINER = """
set -e
ip link set lo up
mount --make-rprivate /
mount -t tmpfs -o mode=777 none "$1"
mount -o remount,bind,ro /
state=$1 health=$2
shift 2
if touch "${state%/*}/writable" 2>/dev/null; then exit 3; fi
"$@" &
daemon=$!
trap 'kill $daemon' EXIT
for _ in $(seq 100); do
  if python=$PYTHON sh -c "$health" 2>/dev/null; then
    trap - EXIT
    kill "$daemon"
    wait "$daemon"
    ls "$state"
    exit
  fi
  kill -0 "$daemon"
  sleep 0.1
done
exit 1
"""


@pytest.fixture
def folder():
    """A folder that nobody may enter as well: pytest's own folders are private."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.mark.needs_root
@pytest.mark.needs_namespaces("--mount", "--net")
@pytest.mark.needs_tool("ip", "setpriv")
def test_the_command_is_healthy_on_a_read_only_root(folder):
    """The image's command, as somebody who may write nothing but the checkpoint, passes the image's health check."""
    state, empty = folder / "state", folder / "empty"
    state.mkdir()
    empty.mkdir()
    for each in (folder, state, empty):
        each.chmod(0o755)
    (folder / "vllm.log").write_text("")
    config = folder / "vllm-watch.yml"
    config.write_text(f"checkpoint: {state}/checkpoint.json\nservers: [{{name: a, log: {folder}/vllm.log}}]\n")
    command = json.loads(of_the_image("CMD"))
    command[command.index("--config") + 1] = str(config)
    health = of_the_image("HEALTHCHECK").partition("CMD ")[2]
    interpreter, *rest = json.loads(health)
    assert interpreter == "/opt/vllm-watch/bin/python"
    check = " ".join(["$python", *(f'"{part}"' for part in rest)])

    ran = run_command(
        "unshare",
        "-m",
        "-n",
        "sh",
        "-c",
        _CONTAINER,
        "sh",
        str(state),
        check,
        *as_nobody(empty),
        sys.executable,
        "-m",
        "vllm_watch",
        *command,
        env={
            **inherited(),
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "PYTHON": sys.executable,
            "PYTHONPATH": ":".join(sys.path[1:]),
        },
    )

    assert (0, "checkpoint.json") == (ran.returncode, ran.stdout.strip()), ran.stderr
