# SPDX-License-Identifier: Apache-2.0
"""The recorder writes what the daemon replays, and each recording is described."""

from __future__ import annotations

import re

from pathlib import Path

from tests.recordings.record import Recorder
from tests.support.http_servers import StandIn, answer

from vllm_watch.replay.open_recording import open_recording
from vllm_watch.replay.recording import LogWritten, MetricsRead


TESTS = Path(__file__).parent


def test_what_is_recorded_can_be_replayed(tmp_path):
    """Bytes of the log and answers of /metrics come back as they came, with their times, failures too."""
    log = tmp_path / "vllm.log"
    with StandIn(lambda _: [answer(b"vllm:num_requests_running 1\n")]) as server:
        recorder = Recorder(tmp_path / "made", log, server.url, started=1_800_000_000.5)
        recorder.record_log(0.1)
        log.write_bytes(b"one\n")
        recorder.record_log(0.2)
        recorder.record_scrape(0.3, *recorder.scrape())
        with log.open("ab") as stream:
            stream.write(b"tw")
        recorder.record_log(0.4)
        recorder.record_log(0.5)
    recorder.record_scrape(0.6, *recorder.scrape())

    recording = open_recording(tmp_path / "made")

    assert recording.started == 1_800_000_000.5
    assert list(recording.events()) == [
        LogWritten(0.2, b"one\n"),
        MetricsRead(0.3, b"vllm:num_requests_running 1\n", "200"),
        LogWritten(0.4, b"tw"),
        MetricsRead(0.6, b"", "URLError"),
    ]


def test_an_http_error_is_recorded_by_its_status(tmp_path):
    """An answer that is no 200 is noted by its number."""
    with StandIn(lambda _: [answer(b"no", "503 Service Unavailable")]) as server:
        recorder = Recorder(tmp_path / "made", tmp_path / "vllm.log", server.url, started=0.0)
        recorder.record_scrape(1.0, *recorder.scrape())

    assert '"status": 503' in (tmp_path / "made" / "timeline.jsonl").read_text()


def test_each_recording_and_folder_is_described():
    """tests/README.md has a row for each recording and for each folder of tests, and no other."""
    text = (TESTS / "README.md").read_text(encoding="utf-8")
    titles = ("Recordings", "What each folder proves")
    recordings, folders = (re.search(rf"(?ms)^## {title}$(.*?)^## ", text)[1] for title in titles)
    rows = re.findall(r"(?m)^\| (`.*?`) \|", recordings)

    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == {
        "day",
        *(path.name for path in (TESTS / "recordings").iterdir() if (path / "timeline.jsonl").exists()),
    }
    assert set(re.findall(r"\]\((\w+)/", folders)) == {
        path.name for path in TESTS.iterdir() if path.is_dir() and path.name != "__pycache__"
    }
