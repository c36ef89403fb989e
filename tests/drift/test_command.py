# SPDX-License-Identifier: Apache-2.0
"""The command as a maintainer uses it: on a wheel, a folder and a checkout, in which little is what it was."""

from __future__ import annotations

import re
import zipfile

from textwrap import dedent

import pytest

from tests.drift import inventory
from tests.drift.__main__ import main
from tests.drift.inventory import FOLDER, baseline_for, read_inventory


LOGGERS = """
    from prometheus_client import Counter, Gauge, Histogram
    class LoggingStatLogger:
        def log(self):
            logger.info("Engine %03d: {line}", *values)
    class PrometheusStatLogger:
        def __init__(self):
            labelnames = ["model_name", "engine"]
            Gauge("vllm:{running}", "Running.", labelnames)
            Gauge("vllm:num_requests_waiting", "Waiting.", labelnames)
            Gauge("vllm:kv_cache_usage_perc", "Usage.", labelnames)
            Counter("vllm:prompt_tokens", "Tokens.", labelnames)
            Counter("vllm:generation_tokens", "Tokens.", labelnames)
            Histogram("vllm:time_to_first_token_seconds", "TTFT.", labelnames, buckets=[0.1, 1])
            Histogram("vllm:e2e_request_latency_seconds", "E2E.", labelnames, buckets=[0.1, 1])
"""
LINE = "Avg prompt throughput: %.1f tokens/s, Running: %d reqs, Waiting: %d reqs, GPU KV cache usage: %.1f%%"


def sources(*, line=LINE, running="num_requests_running", more=""):
    """Return a small vLLM's files."""
    loggers = dedent(LOGGERS).replace("{line}", line).replace("{running}", running)
    return {"vllm/__init__.py": "", "vllm/v1/metrics/loggers.py": loggers, "vllm/v1/core.py": dedent(more)}


def folder(path, files, version="0.40.0"):
    """Write files as pip unpacks a wheel of them."""
    for name, text in {**files, f"vllm-{version}.dist-info/METADATA": f"Name: vllm\nVersion: {version}\n"}.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text, encoding="utf-8")
    return str(path)


def wheel(path, files, version="0.40.0"):
    """Pack files as a wheel."""
    file = path / f"vllm-{version}-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        archive.writestr(f"vllm-{version}.dist-info/METADATA", f"Name: vllm\nVersion: {version}\n")
    return str(file)


def written_file(path, text):
    """Write a file."""
    path.write_text(text)
    return str(path)


def cut_wheel(path):
    """Return a wheel one of whose files is damaged."""
    file = wheel(path, {"vllm/__init__.py": "a" * 100})
    data = bytearray((path / "vllm-0.40.0-py3-none-any.whl").read_bytes())
    data[60] ^= 0xFF
    (path / "vllm-0.40.0-py3-none-any.whl").write_bytes(bytes(data))
    return file


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Keep the inventory of a small vLLM 0.39 in place of those of real releases."""
    kept = tmp_path / "kept"
    kept.mkdir()
    monkeypatch.setattr(inventory, "FOLDER", kept)
    monkeypatch.setattr("tests.drift.__main__.FOLDER", kept)
    return kept


def run(capsys, *arguments):
    """Run the command; return its exit status and its two outputs."""
    status = main(arguments)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.mark.parametrize("make", [folder, wheel])
@pytest.mark.usefixtures("kept")
def test_a_release_of_which_all_is_known_has_status_0(make, tmp_path, capsys):
    """A wheel and a folder are read alike; the report says which release it is and that Rust is not in it."""
    status, out, err = run(capsys, make(tmp_path / "new" if make is folder else tmp_path, sources()))

    assert (status, err) == (0, "")
    assert "vLLM 0.40.0" in out
    assert "The parsers know all of it." in out
    assert "no Rust source" in out


def test_everything_new_is_reported_with_status_1(tmp_path, capsys, kept):
    """A new and a renamed family, other buckets, a new field of a line, and a message that nothing prints are told."""
    shutting = 'logger.info("Gracefully stopping http server")'
    (kept / "0.39.0.json").write_text(facts(capsys, tmp_path / "old", sources(more=shutting), "0.39.0"))
    new = sources(
        line=LINE.replace("Waiting: %d reqs", "Waiting: %d reqs, Parked: %d reqs"),
        running="requests_running",
        more='Gauge("vllm:parked", "Parked.", ["model_name"])\nfrom prometheus_client import Gauge\n'
        'logger.info("Stopping http server gracefully")\n',
    )
    new["vllm/v1/metrics/loggers.py"] = new["vllm/v1/metrics/loggers.py"].replace("[0.1, 1]", "[0.1, 2]")
    new["vllm/v1/metrics/loggers.py"] += "class RayLogger:\n    _gauge_cls = RayGaugeWrapper\n"
    status, out, _ = run(capsys, folder(tmp_path / "new", new))
    lines = [line.strip() for line in out.splitlines()]

    assert status == 1
    assert "vLLM 0.40.0" in lines[0]
    assert "beside 0.39.0" in lines[0]
    for expected in (
        "vllm:parked    [vllm/v1/core.py:1]",
        "gauge, labels: model_name",
        "perhaps the new name of vllm:num_requests_running",
        "it was vllm:num_requests_running",
        "perhaps it is now vllm:requests_running",
        "vllm:e2e_request_latency_seconds (V1): buckets",
        "0.39.0: 0.1, 1",
        "now: 0.1, 2",
        "not found again: Parked: %d reqs",
        "the parser says: unknown field Parked",
        "Gracefully stopping http server",
        "nothing else says Lifecycle:shutting_down",
        "perhaps it is now: Stopping http server gracefully",
        "RayLogger: _gauge_cls is RayGaugeWrapper",
    ):
        assert expected in lines, f"{expected!r} is not in:\n{out}"


def facts(capsys, path, files, version):
    """Return the inventory of a small vLLM as the command prints it."""
    status, out, _ = run(capsys, folder(path, files, version), "--inventory")
    assert status == 0
    return out


@pytest.mark.usefixtures("kept")
def test_the_rust_front_end_is_read_in_a_checkout(tmp_path, capsys):
    """A family that the Rust front end alone registers is a finding; a checkout without rust/ is told."""
    path = tmp_path / "vllm"
    rust = {"rust/src/metrics/src/lib.rs": 'registry.register("vllm:rusty", "Help", x);', "pyproject.toml": ""}
    status, out, _ = run(capsys, folder(path, {**sources(), **rust}))
    bare = folder(tmp_path / "bare", {**sources(), "pyproject.toml": ""})

    assert (status, "vllm:rusty    [rust/]" in out) == (1, True)
    assert "has no rust/" in run(capsys, bare)[1]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda path: str(path / "missing"), r"missing does not exist\.$"),
        (lambda path: written_file(path / "vllm.whl", "text"), r"is neither a wheel nor a folder: .*not a zip file\.$"),
        (lambda path: wheel(path, {"other/__init__.py": ""}), r"has no package vllm with Python files in it\.$"),
        (lambda path: folder(path, {"vllm/__init__.py": ""}), r"it is no whole vLLM\.$"),
        (lambda path: folder(path, {"vllm/v1/a.py": "logger.info(\n"}), r"a\.py line 1 is in no syntax that Python"),
        (cut_wheel, r"vllm-0\.40\.0-py3-none-any\.whl is a broken zip file: "),
    ],
)
@pytest.mark.usefixtures("kept")
def test_what_cannot_be_read_is_one_sentence(make, sentence, tmp_path, capsys):
    """Errors have exit status 2, one sentence that says what is wrong, and no traceback."""
    status, out, err = run(capsys, make(tmp_path))
    (line,) = err.splitlines()

    assert (status, out) == (2, "")
    assert line.startswith("error: ")
    assert re.search(sentence, line)


def test_the_baseline_is_the_newest_kept_release_that_is_not_newer():
    """A release is looked at beside the one before it, and an unknown one beside the newest."""
    newest = max((file.stem for file in FOLDER.glob("*.json")), key=inventory.release_key)

    assert baseline_for("0.11.2") == "0.10.2"
    assert baseline_for("0.12.0+cu129") == "0.12.0"
    assert baseline_for("99.0") == baseline_for("") == newest
    assert baseline_for("0.4.0") is None
    assert read_inventory(FOLDER / f"{newest}.json").version == newest
