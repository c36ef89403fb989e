# SPDX-License-Identifier: Apache-2.0
"""A recording in one file: what was written is read, also where the file breaks off, and nothing else is accepted."""

from __future__ import annotations

import contextlib
import io
import json
import lzma
import re
import tempfile
import tracemalloc

from pathlib import Path

import msgspec
import pytest

from hypothesis import given
from hypothesis import strategies as st
from tests.support.recording_files import STARTED, header, write_lines
from tests.support.recordings import ROOT

from vllm_watch.analysis.replay.recording import (
    BUNDLED,
    MAGIC,
    GpusRead,
    LogWritten,
    MetricsRead,
    Recording,
    is_recording,
)
from vllm_watch.analysis.replay.recording_lines import (
    MAX_HELD,
    Benchmark,
    Command,
    CommandLine,
    Header,
    Line,
    RecordedGpu,
    RecordedGpus,
    RecordingWriter,
    Sources,
    decode_header,
    history_line,
    log_line,
    scrape_line,
)
from vllm_watch.daemon.discovery.serve_command import arguments_of, parse_arguments
from vllm_watch.daemon.state.gpu_report import ServerGpu
from vllm_watch.daemon.state.gpu_use import GpuUse
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.snapshot import FlagValue
from vllm_watch.daemon.support.errors import FileError, UsageError
from vllm_watch_parsers.flags import CommandFacts


BODY = "".join(f'vllm:request_count{{bucket="{number}"}} {number}\n' for number in range(500)).encode()


def written(path, *, servers=("a",), parts=1, bodies=3, is_ended=True):
    """Write scrapes of each server, in so many streams."""
    with path.open("wb") as file:
        writer = RecordingWriter(file, header(*servers))
        for part in range(parts):
            for number in range(bodies):
                t = float(part * bodies + number)
                for server in servers:
                    writer.add(log_line(t, server, b"line %d of %s\n" % (t, server.encode())))
                    writer.add(scrape_line(t, server, 0.25, BODY))
            writer.write_out()
        if is_ended:
            writer.end(float(parts * bodies), "interrupted", {"prompts": 2})
    return path


class TestRoundTrip:
    """What a writer adds, a reader gives back."""

    def test_all_that_is_written_is_read(self, tmp_path):
        """Events, benchmarks, command, servers and times come back as they were written."""
        path = tmp_path / "any.name"
        first = Header(1, STARTED, {"a": Sources(log=True, scrape_interval=2.0), "b": Sources(log=False)})
        with path.open("wb") as file:
            writer = RecordingWriter(file, first)
            writer.add(history_line(-7.25, "a", b"before\n"))
            writer.add(log_line(1.0, "a", "é\r\nline\n".encode()))
            writer.add(log_line(1.5, "a", b"\xff\x00\n", is_after_gap=True))
            writer.add(scrape_line(2.0, "b", 0.125, b'x{l="\xfe"} 1\n'))
            writer.add(scrape_line(3.0, "b", 4.0, b"", "timeout"))
            writer.add(Line(t=9.0, command=Command(("vllm", "bench"), -9, 1.0, 8.5)))
            writer.add(Line(t=9.0, benchmark=Benchmark("result.json", '{"x": 1}')))
            writer.end(9.5, "the command ended", {"lines": 3})

        read = Recording(path)

        assert ("a", "b") == read.servers
        assert {"a": Sources(True, 2.0), "b": Sources(False, None)} == read.sources
        assert (STARTED, 9.5) == (read.started, read.seconds)
        assert Command(("vllm", "bench"), -9, 1.0, 8.5) == read.command
        assert (Benchmark("result.json", '{"x": 1}'),) == read.benchmarks
        assert read.broken_off is None
        assert [
            LogWritten(-7.25, b"before\n", is_history=True),
            LogWritten(1.0, "é\r\nline\n".encode()),
            LogWritten(1.5, b"\xff\x00\n", is_after_gap=True),
        ] == list(read.events("a"))
        assert [MetricsRead(2.0, b'x{l="\xfe"} 1\n', "200", 0.125), MetricsRead(3.0, b"", "timeout", 4.0)] == list(
            read.events("b")
        )

    def test_gpus_are_lines_of_their_server(self, tmp_path):
        """They are under a key of their own, which an older reader does not know, and come back as they were read."""
        first = Header(1, STARTED, {"a": Sources(log=True, gpu_interval=10.0, cost_per_hour=2.5)})
        gpus = RecordedGpus(at=0.5, reason="ok", gpus=(RecordedGpu("GPU-1", "pid"),))
        with (tmp_path / "file").open("wb") as file:
            writer = RecordingWriter(file, first)
            writer.add(Line(t=1.0, server="a", gpus=gpus))
            writer.end(2.0, "interrupted", {})

        read = Recording(tmp_path / "file")
        use = GpuUse(STARTED + 0.5, "ok", (ServerGpu("GPU-1", "pid", False, None, None),))

        assert Sources(True, None, 10.0, 2.5) == read.sources["a"]
        assert [GpusRead(1.0, use, 10.0)] == list(read.events())
        text = lzma.decompress((tmp_path / "file").read_bytes()).splitlines()[1]
        assert json.loads(text) == {
            "t": 1.0, "server": "a", "gpus": {"at": 0.5, "reason": "ok", "gpus": [{"gpu": "GPU-1", "how": "pid"}]}
        }  # fmt: skip

    def test_a_command_line_is_in_the_first_line(self, tmp_path):
        """A replay knows what the recorder knew of it: the flags, of a closed list, and the limits."""
        words = arguments_of([
            "vllm", "serve", "org/m", "--max-num-seqs", "4", "--max-model-len", "16k", "--enforce-eager", "--api-key",
            "sk-secret", "--speculative-config", '{"method": "mtp", "num_speculative_tokens": 4}', "--kv-cache-dtype",
            "fp8", "--kv-transfer-config.kv_connector", "NixlConnector", "--served-model-name", "m",
        ])  # fmt: skip
        facts = parse_arguments(words).facts
        path = tmp_path / "file"
        with path.open("wb") as file:
            said = Sources(log=False, scrape_interval=2.0, command_line=CommandLine.of(facts))
            RecordingWriter(file, Header(1, STARTED, {"a": said, "b": Sources(log=True)})).end(1.0, "ended", {})

        read = Recording(path)

        assert facts == read.sources["a"].command
        assert read.sources["b"].command == CommandFacts()
        assert b"sk-secret" not in lzma.decompress(path.read_bytes())
        known = ServerState(read.sources["a"].settings("a")).snapshot(STARTED)
        assert known.configuration.flags["max-num-seqs"] == FlagValue("4", "command line")

    def test_a_command_line_of_a_stranger_becomes_no_label(self):
        """What is no flag of the list, or not spelt as one, is left out; another shape is an error."""
        said = decode_header(
            b'{"vllm_watch_recording": 1, "started_unix": 1, "vllm_watch": "x", "servers": {"a": {"log": true,'
            b'"command_line": {"flags": {"max-num-seqs": "8", "api-key": "x", "dtype": "a b"}, "model": "a b"}}}}'
        ).servers["a"]

        assert said.command_line.facts == CommandFacts(flags=(("max-num-seqs", "8"),))
        with pytest.raises(msgspec.ValidationError, match=r"servers\[...\].command_line.has_several_api_servers"):
            decode_header(
                b'{"vllm_watch_recording": 1, "started_unix": 1, "vllm_watch": "x", "servers": {"a": {"log": true,'
                b'"command_line": {"has_several_api_servers": -1}}}}'
            )

    @given(st.lists(st.tuples(st.floats(0, 1e6), st.binary() | st.text().map(str.encode), st.booleans()), max_size=20))
    def test_any_bytes_come_back(self, events):
        """Whatever a log or a body holds, it is read as it was written, and times never decrease."""
        with tempfile.NamedTemporaryFile() as file:
            writer = RecordingWriter(file, header("a"))
            for t, data, is_log in events:
                if is_log:
                    writer.add(log_line(t, "a", data))
                else:
                    writer.add(scrape_line(t, "a", 0.0, data))
            writer.end(0.0, "interrupted", {})

            read = list(Recording(Path(file.name)).events())

        assert [data for _, data, _ in events] == [
            event.data if isinstance(event, LogWritten) else event.body for event in read
        ]
        assert sorted(event.at for event in read) == [event.at for event in read]

    def test_a_short_script_writes_one(self, tmp_path):
        """The script in the README of the recordings writes a file that is read as it says."""
        text = (ROOT / "recordings" / "README.md").read_text(encoding="utf-8")
        script = re.search(r"(?s)```python\n(.*?)```", text)[1]
        exec(script, {"path": tmp_path / "file"})
        read = Recording(tmp_path / "file")

        assert (("vllm",), 5.0, None) == (read.servers, read.seconds, read.broken_off)
        assert [
            LogWritten(0.2, b"INFO 11-21 02:50:10 [api_server.py:1] vLLM API server version 0.32.0\n"),
            MetricsRead(5.0, b"", "refused"),
        ] == list(read.events())

    def test_bodies_that_repeat_take_little(self, tmp_path):
        """A scrape of which another one is in the same stream takes less than a hundredth of its size."""
        once = written(tmp_path / "once", bodies=1).stat().st_size
        often = written(tmp_path / "often", bodies=51).stat().st_size

        assert (often - once) / 50 < len(BODY) / 100

    def test_it_can_be_unpacked_by_others(self, tmp_path):
        """The file is what `xz -d` and Python's lzma read: JSON, one value a line."""
        path = written(tmp_path / "r", parts=3)

        lines = [json.loads(line) for line in lzma.decompress(path.read_bytes()).splitlines()]

        assert 1 == lines[0]["vllm_watch_recording"]
        assert 1 + 3 * 3 * 2 + 2 == len(lines)
        assert "interrupted" == lines[-1]["end"]


class TestBreaksOff:
    """A writer that was killed leaves a file that is read as far as it goes."""

    def test_each_prefix_is_read_or_rejected(self, tmp_path):
        """Of a file cut anywhere, all complete streams are read, and it says that it breaks off; nothing fails."""
        whole = written(tmp_path / "whole", parts=4).read_bytes()
        path = tmp_path / "cut"
        header_size = whole.index(MAGIC, 1)
        for size in range(len(MAGIC), header_size):
            path.write_bytes(whole[:size])
            with contextlib.suppress(FileError):  # The first line may be complete before its stream is.
                assert Recording(path).broken_off is not None
        counts = []
        for size in range(header_size, len(whole) - 1, 7):
            path.write_bytes(whole[:size])
            read = Recording(path)
            counts.append(len(list(read.events())))
            assert read.broken_off is not None or size > whole.rindex(MAGIC)

        assert sorted(counts) == counts
        assert {0, 6, 12, 18} <= set(counts)

    def test_it_says_where_it_breaks_off(self, tmp_path):
        """A file without its last line says until when it goes."""
        read = Recording(written(tmp_path / "r", parts=2, is_ended=False))

        assert "the recording breaks off after 5 s: it was not ended, or the rest is damaged" == read.broken_off

    def test_a_damaged_part_ends_it(self, tmp_path):
        """What comes before damage is read, and the reader says that the rest is not."""
        whole = written(tmp_path / "r", parts=3).read_bytes()
        second = whole.index(MAGIC, whole.index(MAGIC, 1) + 1)
        path = tmp_path / "damaged"
        path.write_bytes(whole[: second + 40] + bytes(40) + whole[second + 80 :])

        read = Recording(path)

        assert 6 == len(list(read.events()))
        assert "damaged" in read.broken_off

    def test_what_is_held_is_bounded(self):
        """A writer writes out on its own before it holds more than its limit and one line."""
        file = io.BytesIO()
        writer = RecordingWriter(file, header("a"))
        body = b"x" * (MAX_HELD // 4)

        sizes = []
        for second in range(8):
            writer.add(scrape_line(float(second), "a", 0.0, body))
            sizes.append(writer.size)

        assert sizes[0] < sizes[3] < sizes[-1]


class TestRejected:
    """What is no recording is named with its file, its line and its key."""

    @pytest.mark.parametrize(
        ("lines", "sentence"),
        [
            ([b"{"], ":2: Input data was truncated"),
            ([b"\xff"], ":2: "),
            ([[1]], ":2: Expected `object`, got `array`"),
            ([{"server": "a"}], ":2: Object missing required field `t`"),
            ([{"t": 1e12}], ":2: Expected `float` <= 864000000.0 - at `$.t`"),
            ([{"t": 1, "server": "a", "log": 5}], ":2: Expected `str | null`, got `int` - at `$.log`"),
            ([{"t": 1, "server": "a", "status": 200, "body_base64": "%"}], ":2: Invalid base64"),
            ([{"t": 1}, {"t": 1, "server": "b"}], ":3: server: b is not one of the first line's servers"),
            ([{"t": 2}, {"t": 1}], ":3: t: 1.0 comes after 2.0"),
            ([{"t": 1, "command": {"argv": []}}], ":2: Object missing required field `exit_status` - at `$.command`"),
        ],
    )
    def test_a_wrong_line(self, tmp_path, lines, sentence):
        """A line that is not what the format says is named."""
        path = write_lines(tmp_path / "r", *lines)

        with pytest.raises(FileError) as raised:
            Recording(path)

        assert str(raised.value).startswith(f"{path}{sentence}")

    @pytest.mark.parametrize(
        ("content", "sentence"),
        [
            (b"", ": is not a recording: it does not start as an xz file does"),
            (b'{"vllm_watch_recording": 1}', ": is not a recording: it does not start as an xz file does"),
            (lzma.compress(b""), ":1: is not the first line of a recording: Input data was truncated"),
            (lzma.compress(b"INFO\n"), ":1: is not the first line of a recording: JSON is malformed"),
            (lzma.compress(b'{"x": 1}\n'), ":1: is not the first line of a recording: Object missing required field"),
            (MAGIC + b"nothing", ":1: is not the first line of a recording"),
        ],
    )
    def test_another_file(self, tmp_path, content, sentence):
        """A file that is something else is rejected in one sentence."""
        path = tmp_path / "r"
        path.write_bytes(content)

        with pytest.raises(FileError) as raised:
            Recording(path)

        assert str(raised.value).startswith(f"{path}{sentence}")
        assert "\n" not in str(raised.value)

    def test_a_later_format(self, tmp_path):
        """A file of a format that this version does not know names both."""
        path = write_lines(tmp_path / "r", first=msgspec.structs.replace(header("a"), vllm_watch_recording=2))

        with pytest.raises(FileError, match="in format 2; this version reads up to format 1"):
            Recording(path)

    def test_no_servers(self, tmp_path):
        """A recording is of at least one server."""
        with pytest.raises(FileError, match=":1: servers: expected at least one name"):
            Recording(write_lines(tmp_path / "r", first=header()))

    def test_keys_of_later_versions_are_ignored(self, tmp_path):
        """A key and a line that this version does not know are no error."""
        path = write_lines(tmp_path / "r", {"t": 1, "server": "a", "log": "x\n", "new": 1}, {"t": 2, "new": {}})

        assert [LogWritten(1.0, b"x\n")] == list(Recording(path).events())

    def test_what_is_missing(self, tmp_path):
        """A path that is not there is named, and a folder is no recording."""
        with pytest.raises(FileError, match="none: cannot be read: No such file or directory"):
            Recording(tmp_path / "none")
        with pytest.raises(FileError, match="cannot be read: Is a directory"):
            Recording(tmp_path)


class TestServers:
    """A recording of several servers needs a name."""

    def test_events_are_of_one_server(self, tmp_path):
        """Each server has its own events."""
        read = Recording(written(tmp_path / "r", servers=("a", "b")))

        for name in ("a", "b"):
            logs = [event.data for event in read.events(name) if isinstance(event, LogWritten)]
            assert [b"line %d of %s\n" % (number, name.encode()) for number in range(3)] == logs

    @pytest.mark.parametrize(
        ("name", "sentence"), [(None, "a server must be chosen: --server takes a or b"), ("c", "it has no server c")]
    )
    def test_the_name_is_one_of_them(self, tmp_path, name, sentence):
        """Without a name, or with another one, the names that there are are listed."""
        read = Recording(written(tmp_path / "r", servers=("a", "b")))

        with pytest.raises(UsageError, match=sentence):
            next(read.events(name))


def test_a_recording_is_known_by_its_content(tmp_path):
    """Recordings are recognised whatever their names are, and nothing else is."""
    other = tmp_path / "x.jsonl.xz"
    other.write_text("INFO")

    assert [True, True, False, False] == [
        is_recording(path) for path in (BUNDLED, written(tmp_path / "vllm.log"), other, tmp_path)
    ]


@pytest.mark.slow
def test_reading_takes_bounded_memory(tmp_path):
    """A recording of 40 MB is read in a third of that."""
    path = tmp_path / "r"
    body = BODY * 50
    with path.open("wb") as file:
        writer = RecordingWriter(file, header("a"))
        for second in range(40_000_000 // len(body)):
            writer.add(scrape_line(float(second), "a", 0.0, body))
        writer.end(1e6, "interrupted", {})

    tracemalloc.start()
    try:
        assert 40_000_000 // len(body) == sum(1 for _ in Recording(path).events())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 13_000_000


def test_a_dictionary_of_gigabytes_is_refused(tmp_path):
    """A file that claims to need more memory than any recording is not unpacked."""
    path = tmp_path / "r"
    big = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 30}]
    path.write_bytes(lzma.compress(b'{"vllm_watch_recording": 1}\n', filters=big))

    with pytest.raises(FileError, match="first line"):
        Recording(path)
