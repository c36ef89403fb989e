# SPDX-License-Identifier: Apache-2.0
"""What a server was started with, by its sources, and what a start changes."""

from __future__ import annotations

import re

import pytest

from hypothesis import given
from hypothesis import strategies as st
from tests.parsers.lines import record
from tests.support.server_stories import DEAD, READY, Server, page

from vllm_watch.daemon.catalog.codes import CONFIG_LABELS
from vllm_watch.daemon.exposition.samples import server_samples
from vllm_watch.daemon.state.kept_facts import RunningServer
from vllm_watch.daemon.state.snapshot import ConfigChange, FlagChange
from vllm_watch_parsers.flags import CommandFacts, is_flag_text


CACHE = 'vllm:cache_config_info{{block_size="{block}",cache_dtype="{dtype}",gpu_memory_utilization="0.9"}} 1\n'


def version(number="0.32.0"):
    """Return the line with the version, the first of a start."""
    return record(f"vLLM server version {number}, serving model m", "api_utils.py")


def arguments(**flags):
    """Return the line with the arguments that were given."""
    return record(f"non-default args: { ({'model': 'm', 'api_key': 'sk-1', **flags})!r}", "api_utils.py")


def engine(number="0.32.0", generation="V1 ", **flags):
    """Return the line with what vLLM made of them."""
    printed = ", ".join(
        f"{flag}={value}" for flag, value in {"model": "'m'", "dtype": "torch.bfloat16", **flags}.items()
    )
    return record(f"Initializing a {generation}LLM engine (v{number}) with config: {printed}", "core.py")


def backend(name):
    """Return a line that only some servers print."""
    return record(f"Using {name} attention backend out of potential backends: ['{name}'].", "cuda.py")


def start(server, *lines, given=None, number="0.32.0", after=60.0):
    """Let a server start, later."""
    said = [version(number), arguments(**(given or {})), *(lines or (engine(number),)), READY]
    return server.log(*said, after=after)


def configuration(server):
    """Return what is known of a server's flags."""
    return server.state.snapshot(server.now).configuration


def change(server):
    """Return the last change in words, and its time."""
    known = configuration(server).change
    return known and (known.text, known.at)


def scraped(server, block=16, dtype="auto", start=1.0, after=5.0):
    """Let a page with the cache's configuration be read."""
    return server.scrape(page(start=start, extra=CACHE.format(block=block, dtype=dtype)), after=after)


class TestWhereFlagsAreFrom:
    """Which source a flag's value is taken from."""

    def test_what_vllm_made_of_a_flag_goes_before_what_was_given(self):
        """The engine's configuration is before /metrics, and that before the arguments and the command line."""
        command = CommandFacts(
            flags=(("block-size", "8"), ("dtype", "half"), ("max-num-seqs", "9"), ("runner", "draft"))
        )
        server = Server(command=command)
        start(server, engine(max_seq_len=2048), given={"max_model_len": 4096, "block_size": 32, "max_num_seqs": 24})
        scraped(server)

        assert {
            "block-size": ("16", "metrics"),
            "dtype": ("bfloat16", "log"),
            "gpu-memory-utilization": ("0.9", "metrics"),
            "max-model-len": ("2048", "log"),
            "max-num-seqs": ("24", "log"),
            "runner": ("draft", "command line"),
        } == dict(configuration(server).flags)

    @pytest.mark.parametrize(
        ("given", "method"),
        [({}, ""), ({"spec_method": "eagle"}, "eagle"), ({"speculative_model": "[ngram]"}, "ngram")],
    )
    def test_how_tokens_are_drafted(self, given, method):
        """Without the engine's configuration it is not known that nothing is drafted."""
        server = Server().log(version(), arguments(**given), READY)

        assert method == configuration(server).labels["spec_method"]

    def test_whether_a_flag_that_is_missing_was_given(self):
        """A start's arguments or a command line have all flags that were given; /metrics has some."""
        command = Server(command=CommandFacts(flags=()))
        servers = [scraped(Server()), Server().log(version(), arguments(), READY), command]

        assert [configuration(server).are_all_known for server in servers] == [False, True, True]


class TestChanges:
    """What one start changes against the one before."""

    def test_another_flag(self):
        """The change has the flag with both values and the start's time; a flag that is given no more is not set."""
        server = start(Server(), given={"max_num_batched_tokens": 2048, "max_num_seqs": 24})
        start(server, given={"max_num_batched_tokens": 8192})
        text = "max-num-batched-tokens 2048 → 8192, max-num-seqs 24 → (not set)"

        assert (text, server.now) == change(server)
        samples = [each for each in server_samples(server.state.snapshot(server.now)) if "_change_" in each.name]
        assert [("s", "max-num-batched-tokens", "2048", "8192"), ("s", "max-num-seqs", "24", "")] == [
            sample.labels for sample in samples
        ]
        assert {server.now} == {sample.value for sample in samples}

    def test_the_same_flags(self):
        """A start with the same flags changes nothing, and the last change and the digest stay."""
        server = start(start(Server(), given={"max_num_seqs": 8}), given={"max_num_seqs": 24})
        last, digest = change(server), configuration(server).digest
        start(server, given={"max_num_seqs": 24})

        assert ("max-num-seqs 8 → 24", last[1]) == last == change(server)
        assert digest == configuration(server).digest

    def test_another_release(self):
        """Another release prints other flags: only those that both print are compared."""
        server = start(Server(), engine(quantization="fp8"), given={"max_num_seqs": 8, "stream_interval": 2})
        start(
            server,
            engine("0.33.0", quantization="None", enable_chunked_prefill="True"),
            number="0.33.0",
            given={"max_num_seqs": 24},
        )

        assert "max-num-seqs 8 → 24, version 0.32.0 → 0.33.0" == change(server)[0]

    def test_a_line_that_only_one_start_has(self):
        """A line about one flag that is missing, and an engine's configuration that was cut off, are no change."""
        server = start(Server(), engine(), backend("FLASHINFER"))
        digest = configuration(server).digest
        start(server, engine(), record("Setting attention block size to 528 tokens to ensure it.", "interface.py"))
        assert (None, digest) == (change(server), configuration(server).digest)
        server.log(version(), arguments(), READY, after=60)
        assert change(server) is None

        assert change(start(server, engine(), backend("FLASHINFER"))) is None
        assert (
            "attention-backend FLASHINFER → TRITON_ATTN" == change(start(server, engine(), backend("TRITON_ATTN")))[0]
        )

    def test_a_start_that_failed_before_its_engine(self):
        """What the arguments of a failed start changed, and what the next one takes back, are changes of their own."""
        server = start(Server(), engine(max_seq_len=2048), given={"max_model_len": 2048})
        server.log(version(), arguments(max_model_len=9999), DEAD, after=60)
        assert "max-model-len 2048 → 9999" == change(server)[0]

        start(server, engine(max_seq_len=2048), given={"max_model_len": 2048})
        assert "max-model-len 9999 → 2048" == change(server)[0]

    def test_nothing_is_said_while_a_server_starts(self):
        """Lines of a start come one by one: until it is over there is no digest, and the last change is the old one."""
        server = start(start(Server(), given={"max_num_seqs": 8}), given={"max_num_seqs": 24})
        last = change(server)
        server.log(version(), arguments(max_num_seqs=32), after=60)

        assert last == change(server)
        assert configuration(server).digest is None
        assert "server_config_info" not in {each.name for each in server_samples(server.state.snapshot(server.now))}
        assert "max-num-seqs 24 → 32" == change(server.log(engine(), READY))[0]

    def test_a_log_without_times(self):
        """A change whose time is not known is shown without one, and is no series."""
        server = start(Server(), given={"max_num_seqs": 8})
        batch = server.reader.read([version(), arguments(max_num_seqs=9), engine(), READY], _Undated(server.now))
        server.state.apply_log(batch)

        assert ("max-num-seqs 8 → 9", None) == change(server)
        names = {each.name for each in server_samples(server.state.snapshot(server.now))}
        assert "server_config_info" in names
        assert "server_config_change_timestamp_seconds" not in names


class _Undated:
    """Times of lines that nothing dates."""

    are_known = False

    def __init__(self, now):
        self.now = now

    def at(self, _time):
        return self.now


class TestOtherSources:
    """Changes where no log has the flags."""

    def test_a_restart_seen_in_the_pages(self):
        """The cache's configuration of two processes is compared; a change has the time of the process's start."""
        server = scraped(Server(has_log=False), start=500.0)
        assert change(scraped(server, start=500.0)) is None

        assert ("block-size 16 → 32, kv-cache-dtype (not set) → fp8", 1005.0) == change(
            scraped(server, block=32, dtype="fp8", start=1005.0)
        )

    def test_a_source_that_comes_later(self):
        """That another source has more flags, or fewer, is no change: each is compared with itself."""
        server = scraped(Server(), block=32)
        start(server, given={"block_size": 16})
        scraped(server, block=64, start=1066.0)

        assert change(server) is None
        assert "log" == configuration(server).flags["dtype"].source

    def test_a_command_line(self):
        """A discovered server that is started with other options is compared by these, unless its log has them."""
        old, new = (CommandFacts(flags=(("max-num-seqs", text),), model="m") for text in ("8", "24"))
        silent, loud = Server(command=old), start(Server(command=old), given={"max_num_seqs": 8})
        for server in (silent, loud):
            server.state.life.note_process(RunningServer((1, 1), old), server.now)
            server.state.life.note_process(RunningServer((2, 2), new), server.now)
        loud.log(version(), arguments(max_num_seqs=8), engine(), READY)

        assert ("max-num-seqs 8 → 24", silent.now) == change(silent)
        assert change(loud) is None
        assert change(Server(command=CommandFacts())) is None

    def test_what_an_earlier_process_knew(self):
        """A change that was saved is shown until there is a later one."""
        saved = ConfigChange(900.0, (FlagChange("dtype", "half", "bfloat16"),))
        server = start(Server())
        server.state.restore_change(saved, 0.0)
        assert ("dtype half → bfloat16", 900.0) == change(server)

        assert "max-num-seqs (not set) → 8" == change(start(server, given={"max_num_seqs": 8}))[0]


class TestDigest:
    """The digits that stand for a configuration."""

    @given(st.permutations(["max_num_seqs", "block_size", "enforce_eager", "seed", "port"]))
    def test_the_order_does_not_count(self, order):
        """Equal flags have one digest in any order, and ports, seeds, keys and ids of connectors are no part of it."""
        values = dict(zip(order, [8, 16, True, 1, 1234], strict=True))
        flags = {name: values[name] for name in sorted(values)}
        other = {name: values[name] for name in order} | {"host": "h", "api_key": "sk-2"}

        assert self.of(flags) == self.of(other | {"kv_transfer_config": {"engine_id": "1"}})

    def test_each_flag_counts(self):
        """Another value, another model and a flag more have other digests; each has eight hexadecimal digits."""
        cases = [{}, {"max_num_seqs": 8}, {"max_num_seqs": 9}, {"max_num_seqs": 8, "block_size": 8}, {"model": "other"}]
        found = [self.of(flags) for flags in cases]

        assert len(cases) == len(set(found))
        assert all(re.fullmatch("[0-9a-f]{8}", digest) for digest in found)

    @staticmethod
    def of(flags):
        """Return the digest of a server with these arguments."""
        return configuration(start(Server(), given=flags)).digest


@given(
    st.dictionaries(st.sampled_from(["dtype", "quantization", "max_num_seqs", "kv_cache_dtype"]), st.text()), st.text()
)
def test_whatever_is_printed_the_labels_are_plain(flags, text):
    """No text of a log becomes a label unless it is spelt like a flag's value; there is one series of each kind."""
    server = start(Server(), given={name: repr(value) for name, value in flags.items()})
    start(server, engine(quantization=text.replace("\r", "").replace("\n", "")), given=flags)
    snapshot = server.state.snapshot(server.now)
    samples = [each for each in server_samples(snapshot) if each.name == "server_config_info"]

    assert 1 == len(samples)
    assert all(re.fullmatch(r"[A-Za-z0-9._+-]{0,64}", value) for value in snapshot.configuration.labels.values())
    assert len(CONFIG_LABELS) + 3 == len(samples[0].labels)
    changes = snapshot.configuration.change.changes if snapshot.configuration.change else ()
    assert all(is_flag_text(value) for each in changes for value in each if value is not None)
