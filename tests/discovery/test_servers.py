# SPDX-License-Identifier: Apache-2.0
"""Servers of made-up process tables: which they are, where they answer, where their logs are, and what is said."""

from __future__ import annotations

import os

import pytest

from tests.support.proc_tree import ProcTree

from vllm_watch.daemon.discovery.address import listeners
from vllm_watch.daemon.discovery.processes import Owner, owner_of


CONTAINER = "0123456789abcdef" * 4
SERVE = "/opt/venv/bin/python3 /opt/venv/bin/vllm serve Qwen/Qwen3-8B"
SECRET = "sk-0123456789abcdef"


@pytest.fixture
def tree(tmp_path):
    """A process table with nothing but its first process."""
    (tmp_path / "host").mkdir()
    return ProcTree(tmp_path / "proc", tmp_path / "host")


@pytest.fixture
def log(tmp_path):
    """A log that is there."""
    path = tmp_path / "vllm.log"
    path.write_text("INFO\n")
    return path


class TestWhichProcess:
    """One server is one tree of processes."""

    def test_none(self, tree):
        """Without a server none is found, and how many processes were looked at is known."""
        assert ((), 1) == (tree.find().servers, tree.find().processes)

    def test_children_are_no_servers(self, tree):
        """Workers that were forked with their parent's command line, and those with a title, belong to it."""
        tree.add(10, SERVE)
        tree.add(11, SERVE, parent=10)
        tree.add(12, "VLLM::EngineCore", parent=10)
        tree.add(13, SERVE, parent=12)

        assert [10] == [server.pid for server in tree.find().servers]

    def test_a_wrapper_is_none(self, tree):
        """Of sudo, timeout and a shell the child is the server."""
        tree.add(10, f"sudo {SERVE}", name="sudo")
        tree.add(11, SERVE, parent=10)

        assert 11 == tree.only().pid

    def test_api_servers_are_counted(self, tree):
        """Several API server processes are one server, and their number is what there is of them."""
        tree.add(10, f"{SERVE} -dp 2")
        for number in (0, 1):
            tree.add(11 + number, f"VLLM::APIServer_{number}", parent=10)

        assert 2 == tree.only().command.api_server_count
        assert "2 API servers" in tree.advice()

    def test_an_engine_that_is_left_over(self, tree):
        """An engine whose server was killed is pointed at; one of a program of somebody's is not."""
        tree.add(10, "python offline.py")
        tree.add(11, "VLLM::EngineCore", parent=10)
        assert () == tree.find().findings

        tree.add(12, "VLLM::EngineCore", parent=1)
        (finding,) = tree.find().findings
        assert "kill 12" in finding.text
        assert finding.is_wrong

    def test_its_own_configuration(self, tree, tmp_path):
        """The file of --config is read where the server has it, also by a path relative to its folder."""
        (tmp_path / "c.yaml").write_text(f"port: 8011\nserved-model-name: qwen\napi-key: {SECRET}\n")
        tree.add(10, f"{SERVE} --config c.yaml")
        tree.link("10/cwd", tmp_path)

        assert ("http://127.0.0.1:8011/metrics", "qwen:8011") == (tree.only().url, tree.only().name)
        assert SECRET not in repr(tree.find())

    def test_its_own_configuration_out_of_reach(self, tree):
        """A configuration that cannot be read is said, for the port may be in it."""
        tree.add(10, f"{SERVE} --config /nowhere/c.yaml")

        assert "/nowhere/c.yaml cannot be read" in tree.advice()

    @pytest.mark.parametrize(
        ("model", "name"),
        [
            ("Qwen/Qwen3-8B", "Qwen3-8B"),
            ("/models/qwen/", "qwen"),
            ("/root/.cache/huggingface/hub/models--Qwen--Qwen3-8B/snapshots/0a1b2c", "Qwen3-8B"),
            ("", "vllm"),
        ],
    )
    def test_its_name(self, tree, model, name):
        """A server is named as its model is, without the folders around it."""
        tree.add(10, f"vllm serve {model}")

        assert f"{name}:8000" == tree.only().name


class TestAddress:
    """Where /metrics is."""

    def test_what_listens(self, tree):
        """A server that listens where it says is found there, and nothing is to be said of it."""
        tree.add(10, f"{SERVE} --host 0.0.0.0 --port 8001")
        tree.add(11, "VLLM::APIServer_0", parent=10)
        tree.listen(10, "0.0.0.0", 8001, 77, descriptor=None)
        tree.link("11/fd/9", "socket:[77]")

        assert "http://127.0.0.1:8001/metrics" == tree.only().url
        assert "8001" not in tree.advice()

    def test_nothing_listens(self, tree):
        """A server that does not listen yet is starting: that is said, and is no fault."""
        tree.add(10, SERVE)

        assert "Nothing listens on port 8000: it starts, it ends, or its start has failed." in tree.advice()
        assert not tree.only().findings[0].is_wrong

    @pytest.mark.parametrize("port", [8000, 6379])
    def test_another_listens(self, tree, port):
        """A port that another process has is a fault, and that one's page is not asked for in this one's name."""
        tree.add(10, f"{SERVE} --port {port}")
        tree.listen(10, "127.0.0.1", port, 77, descriptor=None)
        assert tree.only().url is None  # It may still be starting, and has no sockets at all.

        tree.listen(10, "127.0.0.1", 9000, 78)

        assert tree.only().url is None
        assert "Another process listens" in tree.advice()
        assert "Nothing listens" not in tree.advice()

    @pytest.mark.parametrize(
        ("options", "url"),
        [
            ("--host 10.0.0.5", None),
            ("--host ::1", "http://[::1]:8000/metrics"),
            ("--host ::", "http://127.0.0.1:8000/metrics"),
            ("--host localhost --port 8001", "http://localhost:8001/metrics"),
            ("--ssl-certfile cert.pem", "https://127.0.0.1:8000/metrics"),
            ("--root-path /llm", "http://127.0.0.1:8000/metrics"),
            ("--uds /run/vllm.sock", None),
            ("--headless", None),
            ("--host a@b", None),
        ],
    )
    def test_what_the_command_line_says(self, tree, options, url):
        """Host, port, TLS and socket are taken from the command line; a prefix of paths does not move /metrics."""
        tree.add(10, f"{SERVE} {options}")

        assert url == tree.only().url
        assert url is not None or tree.only().findings[0].text

    def test_in_a_container(self, tree):
        """A server in a network of its own is found, and named, by its own address, or by the host's port to it."""
        trie = "Local:\n  |-- 127.0.0.1\n      /32 host LOCAL\n  |-- 172.17.0.2\n      /32 host LOCAL\n"
        tree.add(10, f"{SERVE} --port 8001", network=2)
        tree.write("10/net/fib_trie", trie)
        assert ("http://172.17.0.2:8001/metrics", "Qwen3-8B:8001") == (tree.only().url, tree.only().name)

        line = "docker-proxy -proto tcp -host-ip 0.0.0.0 -host-port 9001 -container-ip 172.17.0.2 -container-port 8001"
        tree.add(20, f"/usr/bin/{line}", name="docker-proxy")
        assert ("http://127.0.0.1:9001/metrics", "Qwen3-8B:9001") == (tree.only().url, tree.only().name)

    def test_an_address_of_this_machine(self, tree):
        """An address that this machine has is asked; one that is another's is not, and it is said what to do."""
        tree.write("10/net/fib_trie", "")
        tree.add(10, f"{SERVE} --host 10.0.0.5")
        tree.write("10/net/fib_trie", "           |-- 10.0.0.5\n              /32 host LOCAL\n")
        assert "http://10.0.0.5:8000/metrics" == tree.only().url

        tree.add(10, f"{SERVE} --host 169.254.169.254 --port 80")
        assert tree.only().url is None
        assert "--host 169.254.169.254 does not look like an address of this machine" in tree.advice()

    @pytest.mark.parametrize(("bound", "host"), [("10.0.0.7", "10.0.0.7"), ("0.0.0.0", "127.0.0.1")])
    def test_a_name_is_what_the_process_listens_on(self, tree, bound, host):
        """A name on a command line may be anybody's: the address that the process itself has bound is asked."""
        tree.add(10, f"{SERVE} --host gpu-7.example")
        assert tree.only().url is None

        tree.listen(10, bound, 8000, 77)
        assert f"http://{host}:8000/metrics" == tree.only().url

    def test_the_socket_of_another_process_makes_no_address(self, tree):
        """That somebody listens on the port does not make a name on another's command line this machine's."""
        tree.add(10, f"{SERVE} --host gpu-7.example")
        tree.listen(10, "10.0.0.7", 8000, 77, descriptor=None)
        tree.link("10/fd/9", "socket:[78]")

        assert tree.only().url is None

    def test_a_network_that_anybody_can_make(self, tree):
        """In a user namespace of its own a process may have taken any address: none of them is asked."""
        tree.link("self/ns/user", "user:[1]")
        tree.add(10, SERVE, network=2)
        tree.write("10/net/fib_trie", "           |-- 10.0.0.9\n              /32 host LOCAL\n")
        tree.link("10/ns/user", "user:[1]")
        assert "http://10.0.0.9:8000/metrics" == tree.only().url

        tree.link("10/ns/user", "user:[2]")
        assert tree.only().url is None

    def test_in_a_container_on_loopback(self, tree):
        """A server that listens on its container's loopback only cannot be reached, and it is said how it could be."""
        tree.add(10, f"{SERVE} --host 127.0.0.1", network=2)

        assert tree.only().url is None
        assert "--host 0.0.0.0" in tree.advice()

    def test_addresses_of_the_kernel(self):
        """Addresses of both families are read as the kernel prints them; what cannot be read is passed over."""
        rows = [
            "  sl  local_address rem_address   st",
            "   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 77 1",
            "   1: 00000000000000000000000001000000:1F41 0:0 0A 0:0 00:0 0     0        0 78 1",
            "   2: 0000000000000000FFFF00000100007F:1F42 0:0 0A 0:0 00:0 0     0        0 79 1",
            "   3: 0100007F:1F43 00000000:0000 01 00000000:00000000 00:00000000 00000000     0        0 80 1",
            "   4: xyz:1F44 0:0 0A 0:0 00:0 0     0        0 81 1",
        ]

        assert [("127.0.0.1", 8000, 77), ("::1", 8001, 78), ("127.0.0.1", 8002, 79)] == list(listeners(rows))


class TestLog:
    """Where the log is, and what is wrong with that."""

    @pytest.mark.parametrize(
        ("target", "words"),
        [
            ("/dev/null", "discarded"),
            ("/dev/pts/3", "terminal (/dev/pts/3)"),
            ("/dev/full", "/dev/full, which is not a file"),
            ("/logs/vllm.log", "cannot be reached from here"),
            ("socket:[5]", "belongs to no known unit"),
            ("pipe:[5]", "whose reader cannot be seen"),
        ],
    )
    def test_kept_nowhere(self, tree, target, words):
        """A log that is kept nowhere is none, and it is said where it goes instead."""
        tree.add(10, SERVE)
        tree.output(10, target)

        assert tree.only().log is None
        assert words in tree.advice()

    def test_a_pipe_that_ends_in_no_file(self, tree):
        """A reader that keeps no file is named."""
        tree.add(10, SERVE)
        tree.output(10, "pipe:[5]")
        tree.add(11, "logger -t vllm", name="logger")
        tree.output(11, "pipe:[5]", descriptors=(0,), flags=os.O_RDONLY)

        assert "a pipe to logger (process 11)" in tree.advice()

    @pytest.mark.parametrize(
        ("cgroup", "inode", "journal", "words"),
        [
            ("system.slice/vllm.service", 5, "vllm.service", ""),
            ("user.slice/user-7.slice/user@7.service/app.slice/vllm.service", 5, None, "journal of a user"),
            ("system.slice/ssh.service", 6, None, "not to the journal"),
        ],
    )
    def test_a_socket(self, tree, cgroup, inode, journal, words):
        """A unit's output to systemd is its journal; a user's is out of reach, and another socket is no journal."""
        tree.add(10, SERVE, cgroup=f"0::/{cgroup}\n", JOURNAL_STREAM=f"8:{inode}")
        tree.output(10, "socket:[5]")

        assert journal == tree.only().journal
        assert words in tree.advice()

    @pytest.mark.parametrize(
        ("cgroup", "place"),
        [
            (f"system.slice/docker-{CONTAINER}.scope", f"var/lib/docker/containers/{CONTAINER}/{CONTAINER}-json.log"),
            (f"kubepods.slice/cri-containerd-{CONTAINER}.scope", f"var/log/containers/vllm-0_a_vllm-{CONTAINER}.log"),
        ],
        ids=["Docker", "Kubernetes"],
    )
    def test_a_containers_log(self, tree, cgroup, place):
        """What a container prints is where its runtime keeps it."""
        tree.add(10, SERVE, cgroup=f"0::/{cgroup}\n")
        tree.output(10, "pipe:[5]")
        assert "The log of its container 0123456789ab is not in a file" in tree.advice()

        path = tree.host / place
        path.parent.mkdir(parents=True)
        path.write_text("{}\n")
        assert str(path) == tree.only().log

    @pytest.mark.parametrize(
        ("option", "environment", "words"),
        [
            ("", {"VLLM_LOGGING_LEVEL": "warning"}, "VLLM_LOGGING_LEVEL=WARNING"),
            ("", {"VLLM_API_KEY": SECRET}, "requires an API key"),
            ("--disable-log-stats", {}, "--disable-log-stats"),
        ],
    )
    def test_what_its_start_does_to_the_log(self, tree, log, option, environment, words):
        """What environment and options do to the log is said, and a key is noticed and not shown."""
        tree.add(10, f"{SERVE} {option}", **environment)
        tree.output(10, log)

        assert words in tree.advice()
        assert SECRET not in repr(tree.find())

    @pytest.mark.parametrize("suffix", [".1", "-20261121", ".2", ".old"])
    def test_renamed(self, tree, log, suffix):
        """A log that rotation renamed is followed where it is, its lasting path is the first, and advice is given."""
        tree.add(10, SERVE)
        tree.output(10, log.rename(f"{log}{suffix}"))

        assert (f"{log}{suffix}", str(log)) == (tree.only().log, tree.only().lasting_log)
        assert "copytruncate" in tree.advice()

    def test_a_date_of_its_own(self, tree, tmp_path):
        """A log that was started with a date in its name was not renamed."""
        path = tmp_path / "vllm-2026-11-21.log"
        path.write_text("")
        tree.add(10, SERVE)
        tree.output(10, path)

        assert str(path) == tree.only().log == tree.only().lasting_log
        assert "copytruncate" not in tree.advice()


class TestOwner:
    """Who runs a process, by its control group."""

    @pytest.mark.parametrize(
        ("text", "owner"),
        [
            ("0::/system.slice/vllm.service\n", Owner("vllm.service")),
            ("0::/system.slice/system-vllm.slice/vllm@qwen.service\n", Owner("vllm@qwen.service")),
            ("12:memory:/x\n1:name=systemd:/system.slice/vllm.service\n0::/\n", Owner("vllm.service")),
            ("0::/user.slice/user-0.slice/session-3.scope\n", Owner("session-3.scope")),
            (f"0::/system.slice/docker-{CONTAINER}.scope\n", Owner(container=CONTAINER)),
            (f"4:memory:/docker/{CONTAINER}\n", Owner(container=CONTAINER)),
            (f"0::/machine.slice/libpod-{CONTAINER}.scope/container\n", Owner(container=CONTAINER)),
            (f"0::/kubepods/burstable/pod1/{CONTAINER}\n", Owner(container=CONTAINER)),
            ("0::/\n", Owner()),
            ("", Owner()),
            ("nonsense\n", Owner()),
        ],
    )
    def test_it(self, text, owner):
        """Units and containers of both versions of control groups are known."""
        assert owner == owner_of(text)


@pytest.mark.parametrize(("user", "is_told"), [(65534, True), (0, False)])
def test_hidden_processes(tree, monkeypatch, user, is_told):
    """Where /proc hides other users' processes, one who is not root is told; from root nothing is hidden."""
    tree.write("self/mounts", f"proc {tree.root} proc rw,nosuid,hidepid=invisible 0 0\n")
    monkeypatch.setattr(os, "geteuid", lambda: user)

    assert [True] * is_told == [each.is_wrong and "hidepid=invisible" in each.text for each in tree.find().findings]
