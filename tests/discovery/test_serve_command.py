# SPDX-License-Identifier: Apache-2.0
"""What a command line says of a server, in every way that vLLM lets people say it; and what never leaves it."""

from __future__ import annotations

import json

import pytest

from hypothesis import given
from hypothesis import strategies as st

from vllm_watch.daemon.discovery.serve_command import arguments_of, parse_arguments


PYTHON = "/opt/venv/bin/python3.11"
SECRET = "sk-0123456789abcdef"


def parsed(line, config=None):
    """Return what a command line, split at blanks, says."""
    return parse_arguments(arguments_of(line.split()), config)


class TestWhatIsAServer:
    """A server is vLLM, or an interpreter that runs it; what only mentions one is none."""

    @pytest.mark.parametrize(
        "line",
        [
            "vllm serve m",
            "/opt/venv/bin/vllm serve m",
            f"{PYTHON} /opt/venv/bin/vllm serve m",
            f"{PYTHON} -u -X dev -W ignore /opt/venv/bin/vllm serve m",
            "python -m vllm.entrypoints.openai.api_server --model m",
            "python3 -u -m vllm.entrypoints.openai.api_server --model m",
            "pypy3 -m vllm serve m",
            "python -m vllm.entrypoints.cli.main serve m",
            "python3.12t /lib/python3.12/site-packages/vllm/entrypoints/openai/api_server.py --model m",
            "vllm-rs serve m",
        ],
    )
    def test_a_server(self, line):
        """Each way to start a server is known, and the model is read from it."""
        assert "m" == parsed(line).model

    @pytest.mark.parametrize(
        "line",
        [
            "",
            "vllm",
            "vllm chat --url http://127.0.0.1:8000",
            "vllm bench serve --model m",
            "sudo vllm serve m",
            "timeout 60 vllm serve m",
            "grep vllm serve",
            "vim /opt/venv/bin/vllm serve",
            "docker run vllm/vllm-openai vllm serve m",
            "python",
            "python -c import,vllm serve m",
            "python -m vllm.entrypoints.api_server --model m",
            "python -m",
            "VLLM::EngineCore",
            "vllm-watch run",
        ],
    )
    def test_no_server(self, line):
        """What names a server without being one is none: of `sudo vllm serve` the child is."""
        assert arguments_of(line.split()) is None


class TestOptions:
    """Options mean what they mean to vLLM."""

    def test_nothing_said(self):
        """Without options a server listens on port 8000, and says nothing of the rest."""
        command = parsed("vllm serve Qwen/Qwen3-8B")

        assert ("Qwen/Qwen3-8B", 8000, ()) == (command.model_name, command.port, command.flags)
        assert not command.needs_api_key

    @pytest.mark.parametrize(
        "option", ["--max-num-seqs 24", "--max-num-seqs=24", "--max_num_seqs 24", "--max_num_seqs=24"]
    )
    def test_dashes_underscores_and_equals_signs(self, option):
        """A name may have dashes or underscores, and its value may follow a blank or an equals sign."""
        assert (("max-num-seqs", "24"),) == parsed(f"vllm serve m {option}").flags

    def test_short_forms(self):
        """-tp, -dp and -asc are what they are short for."""
        command = parsed("vllm serve m -tp 2 -dp=4 -asc 3")

        flags = {"tensor-parallel-size": "2", "data-parallel-size": "4", "api-server-count": "3"}
        assert (flags, 3) == (dict(command.flags), command.api_server_count)

    @pytest.mark.parametrize(
        ("words", "flags"),
        [
            (["--max-num-batched-tokens", "8k", "--gpu_memory_utilization=0.90"], {
                "max-num-batched-tokens": "8000", "gpu-memory-utilization": "0.9",
            }),
            (["--enforce-eager", "--no-enable-prefix-caching", "--enable-chunked-prefill=False"], {
                "enforce-eager": "True", "enable-prefix-caching": "False", "enable-chunked-prefill": "False",
            }),
            (["-sc", '{"method":"mtp","num_speculative_tokens":4,"draft_sample_method":"x"}'], {
                "speculative-config.method": "mtp", "speculative-config.num_speculative_tokens": "4",
            }),
            (["--spec-method", "eagle", "--spec-tokens", "2"], {
                "speculative-config.method": "eagle", "speculative-config.num_speculative_tokens": "2",
            }),
            (["-cc.mode=3", "--kv-transfer-config.kv_role", "kv_both", "-ac.backend", "FLASHINFER"], {
                "compilation-config.mode": "3", "kv-transfer-config.kv_role": "kv_both",
                "attention-backend": "FLASHINFER",
            }),
            (["--kv-transfer-config", '{"kv_connector": "NixlConnector", "engine_id": "9"}', "-pp=2", "-q", "fp8"], {
                "kv-transfer-config.kv_connector": "NixlConnector", "pipeline-parallel-size": "2",
                "quantization": "fp8",
            }),
            (["--api-key", "sk-1", "--port", "8001", "--host", "h", "--dtype", "auto", "--seed", "1"], {}),
            (["--quantization", "a b", "--dtype", "sk 1\n", "--speculative-config", "{"], {}),
        ],
    )  # fmt: skip
    def test_flags_that_matter(self, words, flags):
        """Flags of the list have the values that a server prints of them; other options and odd values are not kept."""
        command = parse_arguments(arguments_of(["vllm", "serve", "m", *words]))

        assert flags == dict(command.flags) == dict(command.facts.flags)
        assert "m" == command.facts.model

    def test_the_last_word_counts(self):
        """Of an option that is given twice the last one holds, as a script that adds its arguments relies on."""
        assert 8001 == parsed("vllm serve m --port 8000 --api-key x --port 8001").port

    @pytest.mark.parametrize(
        ("text", "size"),
        [("16384", "16384"), ("16k", "16000"), ("16K", "16384"), ("25.6k", "25600"), ("auto", None), ("-1", None)],
    )
    def test_sizes_as_people_write_them(self, text, size):
        """16k is sixteen thousand, 16K is 16384, and auto is not known."""
        assert size == dict(parsed(f"vllm serve m --max-model-len {text}").flags).get("max-model-len")

    @pytest.mark.parametrize(
        ("line", "model"),
        [
            ("vllm serve --port 8001 m", "m"),
            ("vllm serve --enforce-eager m", "m"),
            ("vllm serve -tp 2 --model m", "m"),
            ("vllm serve --some-new-option value m", None),
            ("vllm serve", None),
        ],
    )
    def test_where_the_model_stands(self, line, model):
        """The model is the word that belongs to no option; behind an unknown one it could be that one's value."""
        assert model == parsed(line).model

    def test_the_first_served_name(self):
        """Of several served names the first is the one that metrics have."""
        command = parsed("vllm serve /models/m --served-model-name qwen qwen-latest --port 8002")

        assert ("qwen", "/models/m", 8002) == (command.model_name, command.model, command.port)

    @pytest.mark.parametrize("text", ["http", "99999", "-5", "", "\uff18\uff10"])
    def test_a_port_that_is_none(self, text):
        """A port that vLLM would refuse is taken for the usual one."""
        arguments = ("m", f"--port={text}")

        assert 8000 == parse_arguments(arguments).port


class TestConfigFile:
    """What --config names counts, and the command line goes before it."""

    def test_what_it_gives(self):
        """Port, flags, nested settings and lists are read as vLLM reads them."""
        config = (
            "port: 8003\nmax_num_seqs: 24\ndisable-log-stats: true\nserved-model-name: [qwen, other]\n"
            "speculative-config: {method: mtp, num_speculative_tokens: 3}\n"
        )
        command = parsed("vllm serve m --config c.yaml --max-num-seqs 8", config)

        assert (8003, True, "qwen") == (command.port, command.log_stats_disabled, command.served_model_name)
        draft = {"speculative-config.method": "mtp", "speculative-config.num_speculative_tokens": "3"}
        assert {"max-num-seqs": "8", **draft} == dict(command.flags)

    def test_its_key(self):
        """A key in it is noticed and not kept."""
        command = parsed("vllm serve m --config c.yaml", f"api-key: {SECRET}\n")

        assert command.needs_api_key
        assert SECRET not in repr(command)

    @pytest.mark.parametrize("text", ["", "[1, 2]", "a: [", "just text", "port: {a: 1}", "1: 2", "a: " + "[" * 3000])
    def test_one_that_says_nothing(self, text):
        """What is no mapping, or no YAML, leaves the usual values."""
        assert 8000 == parsed("vllm serve m --config c.yaml", text).port


class TestSecrets:
    """No key and no token leaves the command line."""

    @pytest.mark.parametrize(
        "line",
        [
            f"vllm serve m --api-key {SECRET}",
            f"vllm serve m --api-key={SECRET}",
            f"vllm serve m --api_key {SECRET} {SECRET}",
            f"vllm serve --api-key {SECRET} {SECRET} --port 8000",
            f"vllm serve m --hf-token {SECRET}",
            f"vllm serve m --hf-token={SECRET}",
            f"vllm serve --hf-token {SECRET} m",
            f"vllm serve https://user:{SECRET}@host/m",
            f"vllm serve https://host/m?token={SECRET}",
            f"vllm serve m --served-model-name https://{SECRET}@host/m",
            f"vllm serve m --api-k {SECRET}",
        ],
    )
    def test_known_places(self, line):
        """Wherever people put a secret, nothing of it is kept."""
        assert SECRET not in repr(parsed(line))

    @given(
        before=st.lists(st.sampled_from(["--port", "8001", "m", "--enforce-eager", "-tp", "2", "--x", "y"])),
        option=st.sampled_from(["--api-key", "--api_key", "--hf-token", "--some-token", "--api-k"]),
        count=st.integers(min_value=1, max_value=3),
        after=st.lists(st.sampled_from(["--port", "--host", "--enforce-eager", "-tp", "--x"])),
        joins=st.booleans(),
    )
    def test_anywhere(self, before, option, count, after, joins):
        """Between whatever other words, the values of an option that may hold a secret are never kept."""
        secrets = [f"{option}={SECRET}"] if joins else [option, *[SECRET] * count]
        arguments = arguments_of(["vllm", "serve", *before, *secrets, *after])

        assert SECRET not in json.dumps(parse_arguments(arguments)._asdict())

    @given(st.lists(st.text(max_size=12)), st.text(max_size=60))
    def test_any_words(self, words, config):
        """Whatever words there are, something is made of them, and the port is one."""
        command = parse_arguments(tuple(words), config)

        assert 0 <= command.port <= 65535
