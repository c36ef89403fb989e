# SPDX-License-Identifier: Apache-2.0
"""The Debian package: made, installed by dpkg over this machine, removed and purged; all of it in an overlay."""

from __future__ import annotations

import sys

from pathlib import Path

import pytest

from tests.deploy.overlay import covered_machine
from tests.support.installing import make_wheel


SCRIPT = Path(__file__).parents[2] / "deploy" / "debian" / "build.sh"
PYTHON = Path("/usr/bin/python3").resolve()
PLACES = "/etc /lib/systemd /opt /usr/bin /usr/share /var/lib/vllm-watch"
SHARED = (
    "bash-completion/completions/vllm-watch",
    "zsh/vendor-completions/_vllm-watch",
    "fish/vendor_completions.d/vllm-watch.fish",
)

pytestmark = [
    pytest.mark.needs_root,
    pytest.mark.needs_tool("dpkg-deb", "systemd-analyze", "unshare"),
    # What the package lacks without a network comes from the tests' environment.
    pytest.mark.skipif(
        PYTHON.name != f"python3.{sys.version_info.minor}", reason="Debian's Python is not the one of the tests"
    ),
]


@pytest.fixture
def machine(tmp_path):
    """A machine that uses Debian's Python."""
    return covered_machine(tmp_path)


def test_the_package_is_installed_removed_and_purged(machine):
    """It brings program, unit, configuration and the dependency on its Python; removed it leaves the configuration.

    What is compiled at the installation goes with it.
    """
    wheel = make_wheel(machine.folder, "1.0")
    out = machine.folder
    machine.done(f"""
        PYTHON={PYTHON} $build --wheel {wheel} --output {out}/new/folder --revision 2
        deb=$(echo {out}/new/folder/vllm-watch_1.0-2_*.deb)
        dpkg-deb --info $deb >{out}/info
        dpkg-deb --contents $deb >{out}/contents
        find {PLACES} 2>/dev/null | sort >{out}/before || true
        dpkg --install $deb
        vllm-watch --version >{out}/version
        find /opt/vllm-watch -name __pycache__ >{out}/compiled
        zcat /usr/share/doc/vllm-watch/changelog.Debian.gz >{out}/changelog
        vllm-watch check --config /etc/vllm-watch/vllm-watch.yml >{out}/check || echo $? >{out}/status
        systemd-analyze verify vllm-watch.service >{out}/verified 2>&1
        mkdir -p /var/lib/vllm-watch
        dpkg --remove vllm-watch
        ls /opt/vllm-watch >{out}/removed 2>&1 || true
        cat /etc/vllm-watch/vllm-watch.yml >{out}/configuration
        dpkg --purge vllm-watch
        find {PLACES} 2>/dev/null | sort >{out}/after || true
    """)
    said = {path.name: path.read_text() for path in out.iterdir() if path.is_file() and path.suffix == ""}

    assert f"Depends: {PYTHON.name}, libc6\n" in said["info"]
    assert " Version: 1.0-2\n" in said["info"]
    assert said["changelog"].startswith("vllm-watch (1.0-2) ")
    assert ("__pycache__" in said["contents"], "__pycache__" in said["compiled"]) == (False, True)
    assert "/lib/systemd/system/vllm-watch.service\n" in said["contents"]
    assert [each for each in SHARED if f"./usr/share/{each}\n" not in said["contents"]] == []
    assert "usr/local" not in said["contents"]
    assert str(out) not in said["contents"]
    assert (said["version"], said["verified"]) == ("vllm-watch, version 1.0\n", "")
    assert said["check"].startswith("vllm:\n")
    assert "No such file" in said["removed"]
    assert "journal: vllm.service" in said["configuration"]
    assert set(said["after"].splitlines()) == set(said["before"].splitlines())
