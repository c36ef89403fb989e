# SPDX-License-Identifier: Apache-2.0
"""A process table that a test makes up: the files and links of ``/proc`` that discovery reads."""

from __future__ import annotations

import os
import socket
import struct

from vllm_watch.daemon.discovery.processes import Proc
from vllm_watch.daemon.discovery.servers import find_servers


LISTENING = "0A"


class ProcTree:
    """Processes under a folder; what is not given is as for a plain server: run by root, in no unit."""

    def __init__(self, root, host):
        self.root = root
        self.host = host
        self.link("self/ns/net", "net:[1]")
        self.write("self/net/fib_trie", "")
        self.write("self/mounts", f"proc {root} proc rw,nosuid 0 0\n")
        self.add(1, "/sbin/init", name="systemd", parent=0)

    def add(
        self,
        pid,
        line,
        *,
        parent=1,
        started=None,
        name="python",
        cgroup="0::/\n",
        network=1,
        output="/dev/null",
        **environment,
    ):
        """Add a process whose command line is split at blanks: whoever looks meanwhile sees all of it or none."""
        words = line.split()
        fields = " ".join(["S", str(parent), *["0"] * 17, str(started or pid), "0"])
        self.write(f"{pid}/cgroup", cgroup)
        self.write(f"{pid}/environ", "".join(f"{key}={value}\0" for key, value in environment.items()))
        self.write(f"{pid}/net/tcp", "header\n")
        self.write(f"{pid}/net/fib_trie", "")
        self.link(f"{pid}/ns/net", f"net:[{network}]")
        self.link(f"{pid}/root", "/")
        self.link(f"{pid}/cwd", "/")
        self.output(pid, "/dev/null", descriptors=(0,))
        self.output(pid, output)
        self.write(f"{pid}/cmdline", "\0".join(words) + ("\0" if words else ""))
        self.write(f"{pid}/stat", f"{pid} ({name}) {fields}\n")
        return pid

    def output(self, pid, target, *, descriptors=(1, 2), flags=os.O_WRONLY | os.O_APPEND):
        """Let descriptors of a process be open on something."""
        for descriptor in descriptors:
            self.link(f"{pid}/fd/{descriptor}", str(target))
            self.write(f"{pid}/fdinfo/{descriptor}", f"pos:\t0\nflags:\t0{flags:o}\nmnt_id:\t1\n")

    def listen(self, pid, host, port, inode, *, descriptor=9):
        """Let a process listen; without a descriptor another one does."""
        words = struct.unpack("=I", socket.inet_aton(host))
        address = "".join(f"{word:08X}" for word in words)
        row = f"   0: {address}:{port:04X} 00000000:0000 {LISTENING} 0:0 00:0 00000000  0  0 {inode} 1 0 100\n"
        self.write(f"{pid}/net/tcp", self.read(f"{pid}/net/tcp") + row)
        if descriptor is not None:
            self.link(f"{pid}/fd/{descriptor}", f"socket:[{inode}]")

    def write(self, name, text):
        """Write one of the files."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def read(self, name):
        """Return what stands in one of the files."""
        return (self.root / name).read_text()

    def link(self, name, target):
        """Make one of the links, instead of one that is there: at no moment there is none."""
        path, new = self.root / name, self.root / "new"
        path.parent.mkdir(parents=True, exist_ok=True)
        new.symlink_to(target)
        new.replace(path)

    @property
    def proc(self):
        """The process table as the code under test has it."""
        return Proc(self.root)

    def find(self):
        """Return what is found."""
        return find_servers(self.proc, self.proc.processes(), self.host)

    def only(self):
        """Return the only server that is found."""
        (server,) = self.find().servers
        return server

    def advice(self):
        """Return what is said of the only server, as one text."""
        return " ".join(finding.text for finding in self.only().findings)
