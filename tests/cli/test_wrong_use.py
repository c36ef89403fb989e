# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a command line, or with a file that it names, is one sentence, and nothing is written."""

from __future__ import annotations

import shlex

import pytest

from tests.loadtest.load_tests import FOLDER
from tests.support.command_line import called
from tests.support.recordings import RECORDINGS, ROOT, log_file


DAY, STALL, RUN = RECORDINGS["day"], RECORDINGS["stall"], FOLDER / "draft2-run1.jsonl.xz"
LISTEN = "--listen: expected HOST:PORT such as 127.0.0.1:9468, got"
NO_URL = "expected a URL that starts with http:// or https://"

WRONG_USE = [
    ("once", "give --log PATH, --metrics URL or FILE, or both"),
    ("once --metrics ftp://a/metrics", f"--metrics: {NO_URL}"),
    ("once --log /no/such.log --metrics http://", "--metrics: the URL has no host"),
    ("run --config /no/such.yml", "/no/such.yml: cannot be read: no such file or directory"),
    ("run --log a --listen here", f'{LISTEN} "here"'),
    ("run --metrics ftp://a/metrics", f"--metrics: {NO_URL}"),
    ("demo --listen x", f'{LISTEN} "x"'),
    ("discover --force", "--force requires --write FILE"),
    ("backfill", "give at least one SOURCE"),
    (f"backfill {DAY} --step soon", '--step: expected a duration such as 5s, 500ms or 2m, got "soon"'),
    ("top --format json", "--format requires --once"),
    (f"top --recording {DAY}", "use --once to print one screen"),
    (f"top --once --url http://h --recording {DAY}", "--url cannot be combined with --recording"),
    (
        f"top --once --recording {DAY} --log x",
        "--recording cannot be combined with --config, --log and --metrics",
    ),
    ("top --once --url ftp://h", f"--url: {NO_URL}"),
    ("top --once --url http://a:b@h", "use --username and --password-file"),
    ("top --once --url http://h --username a", "--username and --password-file require each other"),
    (f"top --once --url http://h --username a:b --password-file {__file__}", "a user name has no colon"),
    ("top --once --url http://h --ca-file /nowhere", "--ca-file: /nowhere: no such file"),
    ("top --once --ca-file x", "--ca-file requires --url URL"),
    ("top --once --speed 2", "--speed requires --recording FILE"),
    ("top --once --config a.yml --log x", "--config cannot be combined with --log or --metrics"),
    (f"top --once --recording {DAY} --server nobody", "it has no server nobody"),
    ("report", "give at least one SOURCE"),
    (f"report {RUN} --objective fast", "--objective: "),
    (f"report {RUN} --cost-per-hour much", '--cost-per-hour: expected a number above 0 such as 2.4, got "much"'),
    ("report prom:http://h:9090/qwen", "expected prom:URL/SERVER@FROM/TO, such as prom:http://localhost:9090/qwen@"),
    ("report prom:h:9090/qwen@-2h", f"prom:URL/SERVER@FROM/TO: {NO_URL}"),
    ("report prom:http://me:secret@h/qwen@-2h", "a user name or password; use PROMETHEUS_TOKEN_FILE"),
    ("report prom:http://h/qwen@soon", "expected a time such as 2026-11-20T14:00:00Z"),
    ("report prom:http://h/a?b@-2h", "prom:URL/SERVER@FROM/TO: expected 1 to 128 letters, digits or any of"),
    ("backfill prom:http://h/qwen@-2h", "what a Prometheus has needs no backfill"),
    (f"backfill {RUN} {DAY}", "give one recording, or the logs of one server"),
    ("advise", "give at least one SOURCE: a file, a folder, -, or prom:URL/SERVER@FROM/TO"),
    ("advise --url foo", f"--url: {NO_URL}"),
    ("advise --url http://me:secret@h", "--url: a URL must not contain a user name or password"),
    ("advise --for 3m x", "--for requires --url URL"),
    ("advise --url http://h --for 3x", "--for: "),
    (f"advise {RUN} -o a.foo", "-o a.foo: no format has the ending .foo"),
    (f"advise {RUN} --objective quick", "--objective: expected"),
    ("compare -o c.html", "give at least two sides"),
    ("compare a.json b.json --baseline c", "--baseline c: no such side; there are a, b"),
    ("compare a.json b.json --fail-if 'ttft > 1%'", "no metric ttft; known are request_goodput, "),
    ("compare a.json b.json --fail-if much", "expected a metric, < or >, and per cent"),
    ("compare a.json b.json --cost-per-hour c=2", "--cost-per-hour c=2: no side c; there are a, b"),
    ("compare a.json b.json --cost-per-hour -1", "--cost-per-hour: expected a number above 0"),
    ("compare A=prom:http://h/slow@-1h/-2h b", 'expected an end after the start, got "-2h" after "-1h"'),
    ("backtest", "give at least one SOURCE"),
    ("backtest prom:http://127.0.0.1:9@-2h --step 5s", "--step is for a log"),
    (f"backtest {STALL} --objective e2el=5s", "alerts have objectives for ttft and tpot only"),
    (f"backtest {STALL} --step 0s", "--step: expected more than 0 s"),
]

UNUSABLE = [
    ("once --log /no/such.log", "/no/such.log: cannot be read: No such file or directory"),
    ("once --log /", "/: cannot be read: Is a directory"),
    ("once --metrics /no/such.prom", "/no/such.prom: cannot be read: No such file or directory"),
    ("demo --recording /no/such", "/no/such: cannot be read: No such file or directory"),
    ("backfill /no/such", "/no/such: cannot be read: No such file or directory"),
    ("backfill /no/such.log", "/no/such.log: cannot be read: No such file or directory"),
    (
        f"backfill {log_file('dp1')} -o /no/such/file",
        "/no/such/file: cannot be written: No such file or directory",
    ),
    ("backfill /dev/null", "/dev/null: nothing to backfill: no statistics of a vLLM server are in it"),
    ("top --once --recording /nowhere", "/nowhere"),
    (
        "top --once --url http://h --bearer-token-file /nowhere",
        "/nowhere: cannot be read, or has no token",
    ),
    ("top --once --url http://h --username a --password-file /nowhere", "/nowhere: cannot be read: No such"),
    ("top --once --url http://127.0.0.1:1", "http://127.0.0.1:1: nothing listens at this address"),
    ("report nowhere.log", "nowhere.log: cannot be read: No such file or directory"),
    (f"report {RUN} -o /nowhere/r.json", "/nowhere/r.json: cannot be written: No such file or directory"),
    ("advise --url http://127.0.0.1:1", "http://127.0.0.1:1: nothing listens at this address"),
    (f"advise {ROOT.parent / 'pyproject.toml'}", "is no recording or result"),
    ("compare none-a.json none-b.json -o c.html", "none-a.json: cannot be read: No such file"),
    ("backtest /nowhere/vllm.log", "/nowhere/vllm.log: cannot be read"),
]


@pytest.mark.parametrize(
    ("line", "status", "sentence"),
    [*((line, 2, said) for line, said in WRONG_USE), *((line, 1, said) for line, said in UNUSABLE)],
    ids=lambda value: value if isinstance(value, str) and len(value) < 40 else "",
)
def test_what_is_wrong_is_one_sentence(tmp_path, monkeypatch, line, status, sentence):
    """Wrong use is exit 2, and what cannot be read, written or reached is exit 1; each says what is wrong and where."""
    monkeypatch.chdir(tmp_path)
    ended = called(*shlex.split(line))

    assert (ended.returncode, ended.stdout, list(tmp_path.iterdir())) == (status, "", [])
    assert ended.stderr.startswith("vllm-watch: ")
    assert sentence in ended.stderr
    assert ended.stderr.count("\n") == 1
