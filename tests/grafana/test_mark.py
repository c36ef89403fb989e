# SPDX-License-Identifier: Apache-2.0
"""``grafana mark`` writes one region for a run, which replaces that of the run before it, and says what it lacks."""

from __future__ import annotations

import pytest

from tests.grafana.server import EDITOR, GrafanaStandIn, page


TIMES = ("--from", "2026-11-20T14:00:00Z", "--to", "2026-11-20T14:10:00Z")
START, END = 1_795_183_200_000, 1_795_183_800_000
FIND = ("GET", "/api/annotations?type=annotation&tags=vllm-watch&tags=run:one&limit=1000")


def kept(grafana):
    """Return the annotations without what Grafana adds."""
    return [(each["time"], each["timeEnd"], each["text"], set(each["tags"])) for each in grafana.annotations.values()]


def test_a_region_of_the_organization_with_its_tags(command, grafana):
    """One annotation with both ends is written, of no dashboard, tagged with server and run; a line says where."""
    ended = command(
        "mark", grafana.url, *TIMES, "--text", "max-num-seqs 256", "--server", "qwen", "--run", "one", "--tag", "tuning"
    )
    address = f"/d/vllm-watch-load-test?from={START}&to={END + 20_000}&var-server=qwen"

    assert (ended.status, ended.err) == (0, "")
    assert ended.lines("marked") == [f"marked: run one ({grafana.url}{address})"]
    ((start, end, text, tags),) = kept(grafana)
    assert (start, end) == (START, END)
    assert text == f'max-num-seqs 256<br><a href="{address.replace("&", "&amp;")}">Load test</a>'
    assert tags == {"vllm-watch", "loadtest", "server:qwen", "run:one", "tuning"}
    assert [path for method, path in grafana.writes] == ["/api/annotations"]


def test_a_second_mark_of_a_run_replaces_the_first(command, grafana):
    """There is one region of a run: the last; those of other runs and of other people stay."""
    grafana.annotations[7] = {"id": 7, "time": 1, "timeEnd": 2, "text": "mine", "tags": ["vllm-watch", "run:two"]}
    command("mark", grafana.url, *TIMES, "--text", "first", "--run", "one")
    ended = command("mark", grafana.url, *TIMES, "--text", "second", "--run", "one")

    assert ended.lines("replaced")
    assert [text.partition("<")[0] for _, _, text, _ in kept(grafana)] == ["mine", "second"]
    assert not [method for method, _ in grafana.writes if method in {"PUT", "PATCH"}]


def test_the_same_mark_again_changes_nothing(command, grafana):
    """What is there already is left as it is, though Grafana orders tags as it likes."""
    arguments = (*TIMES, "--text", "a < b & c", "--run", "one", "--tag", "b", "--tag", "a", "--tag", "b")
    command("mark", grafana.url, *arguments)
    before = list(grafana.writes)
    ended = command("mark", grafana.url, *arguments)

    assert (ended.status, len(ended.lines("unchanged"))) == (0, 1)
    assert before == grafana.writes


def test_too_many_regions_of_a_run_are_one_again(command, grafana):
    """What an interrupted mark left behind goes with the next one, be it the same."""
    command("mark", grafana.url, *TIMES, "--text", "t", "--run", "one")
    grafana.annotations[9] = {**grafana.annotations[1], "id": 9}
    ended = command("mark", grafana.url, *TIMES, "--text", "t", "--run", "one")

    assert ended.lines("replaced")
    assert len(grafana.annotations) == 1


def test_a_region_is_there_whatever_fails_in_between(command, grafana):
    """The old region is deleted only once the new one is written."""
    command("mark", grafana.url, *TIMES, "--text", "old", "--run", "one")
    grafana.instead["POST", "/api/annotations"] = page(500, b'{"message": "no"}', Content_Type="application/json")
    ended = command("mark", grafana.url, *TIMES, "--text", "new", "--run", "one")

    assert ended.status == 1
    assert [text.partition("<")[0] for _, _, text, _ in kept(grafana)] == ["old"]


def test_text_is_no_markup(command, grafana):
    """A text with angle brackets is shown as it is, and a line break in it is a space, as it would be in Grafana."""
    command("mark", grafana.url, *TIMES, "--text", "<script>alert(1)</script>\n  p99 < 1 s", "--run", "one")

    ((_, _, text, _),) = kept(grafana)
    assert text.startswith("&lt;script&gt;alert(1)&lt;/script&gt; p99 &lt; 1 s<br><a ")


def test_a_grafana_below_a_path_has_links_below_it(command):
    """The link in the text leads below the path that Grafana is served at."""
    with GrafanaStandIn(prefix="/grafana") as grafana:
        command("mark", grafana.url, *TIMES, "--text", "t", "--run", "one")
        ((_, _, text, _),) = kept(grafana)

    assert 'href="/grafana/d/vllm-watch-load-test?' in text


@pytest.mark.parametrize(
    ("more", "run"), [((), "20261120T140000Z"), (("--server", "qwen"), "qwen-20261120T140000Z")], ids=["bare", "server"]
)
def test_a_run_without_an_id_is_called_after_its_start(command, grafana, more, run):
    """Without --run the server and the start make the id, so that the same command again marks nothing twice."""
    for _ in range(2):
        command("mark", grafana.url, *TIMES, "--text", "t", *more)

    ((*_, tags),) = kept(grafana)
    assert f"run:{run}" in tags


def test_times_may_be_relative(command, grafana):
    """A test that just ended is marked by how long ago it began."""
    command("mark", grafana.url, "--from", "-10m", "--text", "t", "--run", "one")

    ((start, end, *_),) = kept(grafana)
    assert end - start == pytest.approx(600_000, abs=1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--from", "then", "--text", "t"), "--from: expected a time such as"),
        (("--from", "-1h", "--to", "-2h", "--text", "t"), "--to: expected a time after --from"),
        ((*TIMES, "--text", "  "), "--text: expected a line"),
        (
            (*TIMES, "--text", "t", "--run", "a b"),
            '--run: expected 1 to 128 letters, digits or any of . _ : / -, got "a b"',
        ),
        ((*TIMES, "--text", "t", "--run", "x" * 91), "--run: expected at most 90 characters, got 91"),
        ((*TIMES, "--text", "t", "--server", "a&b"), "--server: expected 1 to 128 letters"),
        ((*TIMES, "--text", "t", "--tag", " "), "--tag: expected 1 to 90 characters"),
        ((*TIMES, "--text", "t", "--tag", "a\nb"), "--tag: expected 1 to 90 characters"),
    ],
)
def test_wrong_usage_asks_grafana_nothing(command, grafana, arguments, said):
    """What cannot be marked is said with the option's name, and nothing is sent."""
    ended = command("mark", grafana.url, *arguments)

    assert ended.status == 2
    assert ended.err.startswith(f"vllm-watch: {said}")
    assert [] == grafana.requests


@pytest.mark.parametrize(
    ("lacking", "doing"),
    [
        ("annotations:read", "read annotations"),
        ("annotations:create", "create an annotation"),
        ("annotations:create:organization", "create an annotation"),
        ("annotations:delete", "delete an annotation"),
    ],
)
def test_a_right_that_is_missing_is_named(command, grafana, lacking, doing):
    """A token that may do too little is told what it lacks, also where Grafana only says that access is denied."""
    command("mark", grafana.url, *TIMES, "--text", "before", "--run", "one")
    grafana.tokens["glsa_less"] = ("sa-less", EDITOR - {lacking})
    ended = command("mark", grafana.url, *TIMES, "--text", "t", "--run", "one", token=command.token("glsa_less"))

    assert ended.status == 1
    assert f"vllm-watch: the token may not {doing} (403): give its service account the role Editor" in ended.err


def test_a_viewer_is_told_so(command, grafana):
    """A viewer may write on dashboards but not for the organization."""
    ended = command("mark", grafana.url, *TIMES, "--text", "t", token=command.token("glsa_viewer"))

    assert ended.status == 1
    assert "the role Editor (Grafana says: Access denied" in ended.err
