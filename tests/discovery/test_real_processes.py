# SPDX-License-Identifier: Apache-2.0
"""Real processes, redirected as users do it: discovery finds each, and says what is wrong with the bad ones."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile

from pathlib import Path

import pytest

from tests.support.http_servers import free_port
from tests.support.processes import as_nobody
from tests.support.servers_here import ServersHere
from tests.support.waiting import SECONDS, until

from vllm_watch.daemon.config.config_file import load_config


pytestmark = pytest.mark.slow


SECRET = "sk-0123456789abcdef"
COMMAND = [sys.executable, "-m", "vllm_watch"]


@pytest.fixture
def here_for_all():
    """Stand-ins whose folder everyone may enter."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        servers = ServersHere(folder)
        yield servers
        servers.close()


def discover(*arguments, before=()):
    """Run the command; return its exit status and what it printed."""
    result = subprocess.run(
        [*before, *COMMAND, "discover", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert "Traceback" not in result.stderr
    return result


def advice(server):
    """Return what is to be changed, as one text."""
    return " ".join(finding.text for finding in server.findings if finding.is_wrong)


class TestRedirections:
    """Each way that people redirect a server's output in."""

    def test_appended(self, here):
        """`nohup vllm serve … >> log 2>&1`: found with its address and its log, and nothing is to be changed."""
        port = free_port()
        here.start(f"nohup {here.command(port=port)} >> vllm.log 2>&1")
        here.until_listening(port)
        (server,) = here.found()

        assert (f"http://127.0.0.1:{port}/metrics", str(here.folder / "vllm.log")) == (server.url, server.log)
        assert not server.findings

    @pytest.mark.parametrize(
        ("redirection", "has_log", "words"),
        [
            ("> vllm.log 2>&1", True, ">> instead of >"),
            (">> vllm.log 2> /dev/null", True, "Start it with 2>&1"),
            ("> /dev/null 2>&1", False, "discarded"),
            ("2>&1 | tee -a vllm.log > /dev/null", True, ""),
            ("2>&1 | tee vllm.log > /dev/null", True, "with -a"),
            ("> >(tee -a vllm.log > /dev/null) 2>&1", True, ""),
        ],
    )
    def test_redirected(self, here, redirection, has_log, words):
        """The log is what the shell or tee writes, and what is not right is said."""
        here.start(f"{here.command()} {redirection}")
        server = until(lambda: next((each for each in here.found() if each.log or not has_log), None))

        assert (str(here.folder / "vllm.log") if has_log else None) == server.log
        assert words in advice(server) if words else "with -a" not in advice(server)

    @pytest.mark.needs_root
    @pytest.mark.needs_tool("unshare")
    def test_a_file_that_only_its_container_has(self, here):
        """A log in a mount namespace of its own is found through the process's root, and readable there."""
        (here.folder / "inside").mkdir()
        inner = f"mount -t tmpfs none inside && exec {here.command()} >> inside/vllm.log 2>&1"
        server = here.start(f"exec unshare -m /bin/bash -c '{inner}'")

        assert f"/proc/{server.pid}/root{here.folder}/inside/vllm.log" == server.log
        assert os.path.exists(server.log)
        assert "inside its container" in " ".join(finding.text for finding in server.findings)


class TestServers:
    """Which servers there are."""

    def test_a_key_is_never_shown(self, here, tmp_path):
        """A key on the command line or in the environment is in no output: not as text, nor JSON, nor written."""
        here.start(f"VLLM_API_KEY={SECRET} {here.command('--api-key', SECRET, '--hf-token', SECRET)} >> vllm.log 2>&1")
        file = tmp_path / "vllm-watch.yml"
        printed = [discover(), discover("--format", "json"), discover("--write", file)]

        assert all(here.folder.name in each.stdout for each in printed)
        assert all("requires an API key" in each.stdout for each in printed)
        assert SECRET not in "".join(each.stdout + each.stderr for each in printed) + file.read_text()

    @pytest.mark.needs_root
    def test_as_another_user(self, here, tmp_path_factory):
        """One who may not look at the process is told so, and what to do; the rest is found all the same."""
        port = free_port()
        here.start(f"{here.command(port=port)} >> vllm.log 2>&1")
        result = discover("--format", "json", before=as_nobody(tmp_path_factory.mktemp("empty")))
        (server,) = [each for each in json.loads(result.stdout)["servers"] if each.get("model_name") == here.model]

        assert f"http://127.0.0.1:{port}/metrics" == server["metrics"]
        assert "log" not in server
        assert any("CAP_SYS_PTRACE" in finding["text"] for finding in server["findings"])

    @pytest.mark.needs_root
    def test_as_another_user_with_the_capabilities(self, here, tmp_path_factory):
        """With the two capabilities that are named, another user's process shows where its log is."""
        here.start(f"{here.command()} >> vllm.log 2>&1")
        words = "+sys_ptrace,+dac_read_search"
        before = [*as_nobody(tmp_path_factory.mktemp("empty")), f"--inh-caps={words}", f"--ambient-caps={words}"]
        result = discover("--format", "json", before=before)
        (server,) = [each for each in json.loads(result.stdout)["servers"] if each.get("model_name") == here.model]

        assert str(here.folder / "vllm.log") == server["log"]

    @pytest.mark.needs_root
    def test_a_log_that_only_its_group_may_read(self, here_for_all, tmp_path_factory):
        """A log that one's own server has open and one may not open is said to be so."""
        here, nobody = here_for_all, as_nobody(tmp_path_factory.mktemp("empty"))
        log = here.folder / "vllm.log"
        log.touch()
        log.chmod(0o640)
        os.chown(log, 0, 4)
        with log.open("ab") as file:
            here.start(f"exec {shlex.join(nobody)} {here.command()}", stdout=file, stderr=file)
        result = discover("--format", "json", before=nobody)
        (server,) = [each for each in json.loads(result.stdout)["servers"] if each.get("model_name") == here.model]
        said = " ".join(finding["text"] for finding in server["findings"])

        assert "log" not in server
        assert "nobody may not read its log" in said


class TestCommand:
    """The command as it is typed."""

    def test_what_it_says(self, here):
        """A block for each server: its process, its address, its log, what it was started with, and what to change."""
        port = free_port()  # The usual one may be that of a real server.
        server = here.start(f"{here.command('--max-num-seqs', '24', '--disable-log-stats', port=port)} > vllm.log 2>&1")
        result = discover()
        block = result.stdout.split(f"{here.folder.name}:{port}:\n")[1]

        assert 1 == result.returncode
        assert f"process {server.pid} of " in block
        assert f"metrics: http://127.0.0.1:{port}/metrics" in block
        assert f"log: {here.folder}/vllm.log" in block
        assert "flags: max-num-seqs 24" in block
        assert "TO CHANGE: Its log was opened with >" in block
        assert "TO CHANGE: It was started with --disable-log-stats" in block

    def test_what_it_writes(self, here, tmp_path):
        """What --write writes is a configuration of what was found, and is not written over without --force."""
        port = free_port()
        here.start(f"{here.command(port=port)} >> 'vllm log é.txt' 2>&1")
        here.until_listening(port)  # What is written says so of a server that does not listen yet.
        file = tmp_path / "vllm-watch.yml"

        def written():  # Others may start and end on this machine meanwhile.
            return [each for each in load_config(str(file)).servers if each.name == f"{here.folder.name}:{port}"]

        assert f"{file} is written" in discover("--write", file).stderr
        servers = written()

        assert [f"{here.folder}/vllm log é.txt"] == [each.log for each in servers]
        assert [f"http://127.0.0.1:{port}/metrics"] == [each.metrics.url for each in servers]

        before = file.read_text()
        refused = discover("--write", file)
        assert (2, before) == (refused.returncode, file.read_text())
        assert f"--write: {file} exists already; --force overwrites it" in refused.stderr

        file.write_text("")
        discover("--write", file, "--force")
        assert servers == written()
