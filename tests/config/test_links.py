# SPDX-License-Identifier: Apache-2.0
"""Links to logs and GPUs: what is accepted, which server has which, and what their placeholders become."""

from __future__ import annotations

from urllib.parse import unquote

import pytest

from vllm_watch.daemon.config.config_file import load_config
from vllm_watch.daemon.config.links import MAX_LENGTH, parse_link
from vllm_watch.daemon.config.server_config import filled_links


EXPLORE = "/explore?panes=%7B%22a%22:%7B%22range%22:%7B%22from%22:%22{from}%22,%22to%22:%22{to}%22%7D%7D%7D"
JOURNAL = "{name: j, log: {journal: vllm@1.service}, metrics: 'http://gpu1.example.com:8000/metrics'}"
FILE = "{name: org/f, log: /f.log, metrics: 'http://[::1]:8000/metrics'}"


def links_of(tmp_path, *servers, links=""):
    """Return the links of each server, filled, by its name."""
    file = tmp_path / "vllm-watch.yml"
    file.write_text(f"links: {{{links}}}\nservers: [{', '.join(servers)}]\n", encoding="utf-8")
    return {server.name: dict(filled_links(server)) for server in load_config(str(file)).servers}


def test_all_servers_have_the_daemons_links(tmp_path):
    """The daemon's links are those of each server, with its name; those of the time are left."""
    found = links_of(tmp_path, JOURNAL, FILE, links=f"logs: '{EXPLORE}', gpu: '/d/gpu?s={{server}}'")

    assert {"j": {"logs": EXPLORE, "gpu": "/d/gpu?s=j"}, "org/f": {"logs": EXPLORE, "gpu": "/d/gpu?s=org%2Ff"}} == found


def test_a_server_without_what_is_named_has_no_link(tmp_path):
    """Of the daemon's links a server has only those that it can fill: a file is no unit, an IPv6 address no name."""
    found = links_of(tmp_path, JOURNAL, FILE, links="logs: 'http://{host}/?unit={unit}', gpu: '/d/gpu?h={host}:9400'")
    expected = {"logs": "http://gpu1.example.com/?unit=vllm%401.service", "gpu": "/d/gpu?h=gpu1.example.com:9400"}

    assert {"j": expected, "org/f": {}} == found


def test_a_unit_with_a_backslash_fills_no_link(tmp_path):
    """Grafana would turn the backslash: no link is better than a wrong one."""
    assert {"a": {}} == links_of(tmp_path, r"{name: a, log: {journal: 'a\x2db.service'}}", links="logs: '/l?u={unit}'")


def test_a_servers_own_link_replaces_that_of_the_daemon(tmp_path):
    """Each link is replaced by itself; the other one stays."""
    own = JOURNAL.replace("{name: j", "{name: j, links: {logs: 'https://logs.example.com/{unit}'}")
    found = links_of(tmp_path, own, links="logs: /all, gpu: /d/gpu")

    assert {"j": {"logs": "https://logs.example.com/vllm%401.service", "gpu": "/d/gpu"}} == found


@pytest.mark.parametrize(
    "link",
    [
        "https://{host}:9090/system/logs#/?service={unit}&since=%40{from_seconds}&until=%40{to_seconds}",
        "http://h.example.com:3000/grafana/d/abc/gpu?var-host={server}&from={from}&to={to}",
        "/explore?expr=%7Bunit%3D%60vllm%60%7D%20%7C%3D%20%60error%60",
        "/a?" + "b" * (MAX_LENGTH - 3),
    ],
)
def test_links_that_are_accepted(link):
    """A link is taken as it is written, and is the same link once it is decoded."""
    assert link == parse_link(link)
    assert unquote(link) == unquote(unquote(link))


@pytest.mark.parametrize("sign", ["%5c", "%5C", "%23", "%25", "%26", "%2b", "%0A", "%09", "%7f"])
def test_what_grafana_would_change_is_rejected(sign):
    """A sign that means something else, or is gone, once Grafana has decoded the link is named."""
    with pytest.raises(ValueError, match=f"Grafana decodes {sign} before it opens a link"):
        parse_link(f"https://h.example.com/?a=b{sign}c")


@pytest.mark.parametrize(
    "secret", ["https://h/?api_key=hunter2", "https://u:hunter2@h/", "ftp://h/hunter2", "/{hunter2"]
)
def test_no_message_repeats_a_link(secret):
    """A link may hold a secret: what is said of a wrong one repeats nothing of it."""
    with pytest.raises(ValueError, match=r"\w") as caught:
        parse_link(secret)

    assert "hunter2" not in str(caught.value)
