# SPDX-License-Identifier: Apache-2.0
"""The configuration: what good files mean, and the sentence for each mistake."""

from __future__ import annotations

import re

from pathlib import Path

import msgspec
import pytest

from hypothesis import example, given, settings
from hypothesis import strategies as st

from vllm_watch.daemon.config.config_file import load_config
from vllm_watch.daemon.config.from_options import config_from_options, with_listen, with_prometheus
from vllm_watch.daemon.config.model import Config, GpuConfig, KubernetesConfig, OtlpConfig, PrometheusConfig
from vllm_watch.daemon.config.server_config import (
    SLO_PRESETS,
    CapacityConfig,
    MetricsConfig,
    ProbeConfig,
    ServerConfig,
    SloConfig,
    TlsConfig,
)
from vllm_watch.daemon.config.texts import DEFAULT_LISTEN, parse_duration, parse_url
from vllm_watch.daemon.config.yaml_node import MAX_BYTES
from vllm_watch.daemon.support.errors import MAX_MISTAKES, ConfigError, UsageError


HERE = Path(__file__).parent
GOOD = HERE / "good"
URL = "http://127.0.0.1:8000/metrics"
SECRET = "hunter2"
METRICS = "servers:\n- name: a\n  metrics:\n    url: http://h\n    "
MISTAKES = re.findall(r"(?ms)^=== (\w+)\n(.*?)^>>> (.*?)$", (HERE / "mistakes.txt").read_text(encoding="utf-8"))
"""Of each wrong configuration its name, its text, and what follows the file's name in the message."""


def write(folder, text):
    """Write a configuration and return its path."""
    path = folder / "vllm-watch.yml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def message_for(path):
    """Return what is said of a wrong file."""
    with pytest.raises(ConfigError) as caught:
        load_config(str(path))
    return str(caught.value)


class TestGoodFiles:
    """What a file means."""

    def test_minimal(self):
        """A name and a URL are enough; the rest has defaults."""
        server = ServerConfig(name="qwen", metrics=MetricsConfig(url=URL, interval=5.0, timeout=4.0))

        assert load_config(str(GOOD / "minimal.yml")) == Config(listen=DEFAULT_LISTEN, servers=(server,))

    def test_log_only(self):
        """A log is enough too; its relative path starts in the file's folder, and a quoted "no" is a text."""
        server = ServerConfig(name="no", log=str(GOOD / "logs/vllm-*.log"), stall_after=30.0)

        assert load_config(str(GOOD / "log_only.yml")).servers == (server,)

    def test_full(self):
        """Every key is understood; paths start in the file's folder, and GPUs are named as their driver does."""
        metrics = MetricsConfig(
            url="https://vllm.example:8443/prefix/metrics?format=text",
            interval=10.0,
            timeout=2.5,
            bearer_token_file=str(GOOD / "token"),
            tls=TlsConfig(
                ca_file="/etc/ssl/ca.pem",
                cert_file=str(GOOD / "tls/cert.pem"),
                key_file=str(GOOD / "tls/key.pem"),
            ),
        )
        probe = ProbeConfig(
            every=300.0,
            timeout=30.0,
            api_key_file=str(GOOD / "key"),
            model="org/qwen",
            url="https://gateway.example/v1/completions",
        )
        first = ServerConfig(
            name="org/qwen-2.5:7b",
            log="/var/log/vllm/vllm.log",
            metrics=metrics,
            probe=probe,
            slo=SLO_PRESETS["chat"],
            capacity=CapacityConfig(
                tokens_per_second=18700.0,
                lower=17765.0,
                upper=19635.5,
                prompt_tokens_per_second=74900.0,
                benchmark="bench-2026-11.json",
            ),
            gpus=(
                "GPU-5ac2e1b4-0c7e-4d3a-9f1b-2a3b4c5d6e7f",
                "GPU-6bd3f2c5-1d8f-4e4b-8a2c-3b4c5d6e7f80",
                "MIG-5ac2e1b4-0c7e-4d3a-9f1b-2a3b4c5d6e7f",
            ),
            cost_per_hour=98.32,
            peak_flops=989.4e12,
            labels={"team": "search", "tier": "1"},
            stall_after=120.0,
        )
        config = load_config(str(GOOD / "full.yml"))

        assert config == Config(
            listen="[::1]:9469",
            allowed_hosts=("watch.example.com", "gpu1"),
            web_config_file=str(GOOD / "web.yml"),
            checkpoint="/var/lib/vllm-watch/checkpoint.json",
            prometheus=PrometheusConfig(
                url="https://p.example/prometheus",
                timeout=2.0,
                bearer_token_file=str(GOOD / "token"),
                tls=TlsConfig(ca_file="/etc/ssl/ca.pem"),
            ),
            gpu=GpuConfig(read="always", interval=10.0, kernel_log="never"),
            servers=(first, *config.servers[1:]),
        )
        assert (config.host, config.port) == ("::1", 9469)
        with pytest.raises(TypeError):
            config.servers[0].labels["team"] = "other"

    def test_full_other_servers(self):
        """A timeout that is not given fits the interval, and objectives may be a preset or explicit."""
        _, llama, mistral = load_config(str(GOOD / "full.yml")).servers

        assert llama.metrics == MetricsConfig(url="http://[::1]:8001/metrics", interval=0.5, timeout=0.4)
        assert llama.slo == SloConfig(time_to_first_token=1.5, time_per_output_token=0.075)
        assert (llama.gpus, llama.cost_per_hour) == (("0", "7", "0000:9b:00", "10001:81:00"), 2.0)
        assert mistral.slo == SloConfig(time_to_first_token=2.0, time_per_output_token=0.1)
        assert mistral.log == str(GOOD / "../mistral.log")

    def test_gpus_of_amd(self, tmp_path):
        """A card of AMD is named by its serial number, as it is written."""
        text = f"servers: [{{name: a, metrics: '{URL}', gpus: [amd-692251001124, AMD-PCB053316-0042]}}]"

        assert load_config(write(tmp_path, text)).servers[0].gpus == ("AMD-692251001124", "AMD-PCB053316-0042")

    def test_pods(self, tmp_path):
        """Pods need a selector alone; there are none by default, and servers may stand beside them."""
        text = "kubernetes: {selector: ' app in (a,b), !old ', port: http, metrics: {interval: 1s}, slo: chat}\n"
        config = load_config(write(tmp_path, text))

        assert config.servers == ()
        assert config.kubernetes == KubernetesConfig(
            selector="app in (a,b), !old",
            port="http",
            metrics=MetricsConfig(url="", interval=1.0, timeout=0.8),
            slo=SLO_PRESETS["chat"],
        )
        both = load_config(write(tmp_path, f"{text}servers: [{{name: a, metrics: '{URL}'}}]\n"))
        assert ["a"] == [server.name for server in both.servers]
        assert load_config(str(GOOD / "minimal.yml")).kubernetes is None

    def test_capacity_in_a_file_of_its_own(self, tmp_path):
        """A capacity may be the path of a file, which starts in the configuration's folder."""
        saved = tmp_path / "capacity.yml"
        saved.write_text("tokens_per_second: 950.5\n")
        path = write(tmp_path, f"servers: [{{name: a, metrics: '{URL}', capacity: capacity.yml}}]")

        assert load_config(path).servers[0].capacity == CapacityConfig(tokens_per_second=950.5)

        saved.write_text("tokens_per_second: 950.5\nlower: 951\n")
        with pytest.raises(ConfigError, match=re.escape(f"{saved}:2: lower: 951 is more than tokens_per_second")):
            load_config(path)
        saved.unlink()
        with pytest.raises(ConfigError, match=re.escape(f"{path}:1: servers[0].capacity: {saved}: cannot be read")):
            load_config(path)

    def test_probe(self):
        """A probe's time fits its turn, and it goes to the host and port of /metrics; without one there is none."""
        first, llama, mistral = load_config(str(GOOD / "full.yml")).servers

        assert llama.probe == ProbeConfig(every=10.0, timeout=10.0)
        assert llama.probe_url == "http://[::1]:8001/v1/completions"
        assert first.probe_url == "https://gateway.example/v1/completions"
        assert (mistral.probe, mistral.probe_url) == (None, None)

    def test_prometheus(self, tmp_path):
        """The Prometheus may be a URL alone."""
        alone = load_config(write(tmp_path, f"prometheus: http://p:9090/\nservers: [{{name: a, metrics: '{URL}'}}]"))

        assert alone.prometheus == PrometheusConfig(url="http://p:9090", timeout=5.0)

    def test_journal(self):
        """A log may be a unit's journal, alone or beside metrics; then it has no path."""
        alone, beside = load_config(str(GOOD / "journal.yml")).servers

        assert alone == ServerConfig(name="qwen", journal="vllm.service")
        assert (beside.log, beside.journal) == (None, r"vllm@gpu\x2d0:1.service")
        assert beside.metrics == MetricsConfig(url=URL)


class TestServersDir:
    """A folder of which each file is one server."""

    def folder(self, tmp_path, listed="", **files):
        """Write a configuration and the folder that it names; return the configuration's path."""
        folder = tmp_path / "servers.d"
        folder.mkdir()
        for name, text in files.items():
            (folder / f"{name}.yml").write_text(text)
        return write(tmp_path, f"servers_dir: servers.d\n{listed}")

    def test_one_file_one_server(self, tmp_path):
        """A file holds the keys of one server, in order of the files' names; a name that is not given is the file's."""
        path = self.folder(tmp_path, b="log: /b.log", c="{name: other, log: /c.log}", a="metrics: http://h/metrics")
        config = load_config(path)
        folder = tmp_path / "servers.d"

        assert config.servers == (
            ServerConfig(name="a", metrics=MetricsConfig(url="http://h/metrics")),
            ServerConfig(name="b", log="/b.log"),
            ServerConfig(name="other", log="/c.log"),
        )
        assert config.files == {name: f"{folder}/{name[0]}.yml" for name in "ab"} | {"other": f"{folder}/c.yml"}

    def test_relative_paths(self, tmp_path):
        """The folder is sought beside the configuration, and what a server's file names beside that file."""
        config = load_config(self.folder(tmp_path, a="{log: a.log, metrics: {url: http://h, bearer_token_file: t}}"))

        assert config.servers_dir == str(tmp_path / "servers.d")
        assert config.servers[0].log == str(tmp_path / "servers.d/a.log")
        assert config.servers[0].metrics.bearer_token_file == str(tmp_path / "servers.d/t")

    def test_leftovers_are_not_read(self, tmp_path):
        """What is hidden or ends otherwise is not read, whatever it holds."""
        path = self.folder(tmp_path, a="log: /a.log")
        for name in (".b.yml", "b.yml~", ".b.yml.swp", "b.yml.rpmsave", "b.yml.dpkg-dist", "b.yaml", "#b.yml#"):
            (tmp_path / "servers.d" / name).write_text("{")

        assert ["a"] == [server.name for server in load_config(path).servers]

    @pytest.mark.parametrize(
        ("files", "message"),
        [
            ({"a": "log: /a.log\nmetric: b"}, 'a.yml:2: unknown key "metric"; did you mean "metrics"?'),
            ({"a": "log: /a.log\nlog: b"}, 'a.yml:2: duplicate key "log", first given in line 1'),
            ({"a": "labels: {}\nmetrics: {url: h}"}, "a.yml:2: metrics.url: expected a URL that starts with"),
            ({"a": "name: a"}, "a.yml:1: needs log, metrics or both"),
            ({"a": "- log: /a.log"}, "a.yml:1: expected a mapping, got a list"),
            ({"a": "servers: [{name: a, log: b}]"}, 'a.yml:1: unknown key "servers"; known are name, log, metrics'),
            ({"a": ""}, "a.yml: the file is empty"),
            ({"a": "{"}, "a.yml:1: not YAML"),
            ({"a b": "log: /a.log"}, 'a b.yml:1: expected 1 to 128 letters, digits or any of . _ : / -, got "a b"'),
            ({"a": "log: /a.log", "b": "log: /b.log\nname: a"}, 'b.yml:2: name: "a" is already the name of {}/a.yml'),
            ({"z": "log: /a.log"}, 'z.yml:1: "z" is already the name of a server in {}/../vllm-watch.yml'),
        ],
    )
    def test_messages(self, tmp_path, files, message):
        """Whatever is wrong in a file of the folder, the message names that file, the line and the key path."""
        path = self.folder(tmp_path, "servers: [{name: z, log: /z.log}]", **files)
        folder = tmp_path / "servers.d"
        expected = message.format(folder).replace("servers.d/../", "")

        assert message_for(path).startswith(f"{folder}/{expected}")

    def test_a_name_that_is_given_makes_the_files_name_free(self, tmp_path):
        """A file may be called anything when it says the server's name."""
        config = load_config(self.folder(tmp_path, **{"10 my server": "{name: a, log: /a.log}"}))

        assert config.servers[0].name == "a"


SEVERAL_MISTAKES = """\
listen: 9468
allowed_hosts: [gpu1, "a:1", "b:2"]
servers:
  - name: my server
    metrics:
      url: ftp://h
      interval: soon
      tls: {key: k}
  - log: [a]
  - name: b
    log: {journal: "no unit"}
    labels: {team: search, engine: "0", rack: 12}
chekpoint: x
"""
ITS_MESSAGES = (
    ':1: listen: expected HOST:PORT such as 127.0.0.1:9468, got "9468"',
    ':2: allowed_hosts[1]: expected a host\'s name such as gpu1.example.com, without a port, got "a:1"',
    ':2: allowed_hosts[2]: expected a host\'s name such as gpu1.example.com, without a port, got "b:2"',
    ':4: servers[0].name: expected 1 to 128 letters, digits or any of . _ : / -, got "my server"',
    ":6: servers[0].metrics.url: expected a URL that starts with http:// or https://",
    ':7: servers[0].metrics.interval: expected a duration such as 5s, 500ms or 2m, got "soon"',
    ':8: servers[0].metrics.tls: unknown key "key"; known are ca_file, cert_file, key_file',
    ':9: servers[1]: missing key "name"',
    ":9: servers[1].log: expected text, got a list",
    ':11: servers[2].log.journal: expected a unit such as vllm.service, got "no unit"',
    ':12: servers[2].labels: "engine" is a label of vllm-watch itself',
    ":12: servers[2].labels.rack: expected text, got the number 12; put it in quotes",
    ':13: unknown key "chekpoint"; did you mean "checkpoint"?',
)


class TestSeveralMistakes:
    """All mistakes of a file are found at once."""

    def test_all_are_named(self, tmp_path):
        """Each mistake has its own message, in the order of the file."""
        path = write(tmp_path, SEVERAL_MISTAKES)

        assert message_for(path) == "\n".join(f"{path}{message}" for message in ITS_MESSAGES)

    def test_all_files_of_a_folder(self, tmp_path):
        """A mistake in one file of `servers_dir` does not hide those in the next."""
        folder = tmp_path / "servers.d"
        folder.mkdir()
        (folder / "a.yml").write_text("{")
        (folder / "b.yml").write_text("log: /b.log")
        (folder / "c.yml").write_text("log: /c.log\nslo: fast")
        first, second = message_for(write(tmp_path, "servers_dir: servers.d")).split("\n")

        assert first.startswith(f"{folder}/a.yml:1: not YAML")
        assert second.startswith(f"{folder}/c.yml:2: slo: expected chat, batch or a mapping")

    def test_a_file_of_mistakes_does_not_flood(self, tmp_path):
        """Beyond twenty mistakes only their number is shown."""
        path = write(tmp_path, "servers:\n" + "- {name: a b, log: /a.log}\n" * 500)
        lines = message_for(path).split("\n")

        assert len(lines) == MAX_MISTAKES + 1
        assert lines[-1] == "480 more mistakes"

    def test_a_misspelt_key_is_not_missing_too(self, tmp_path):
        """Where a key is unknown, no missing key is reported: they may be the same."""
        path = write(tmp_path, "servers: [{nam: a, log: /a.log}]")

        assert message_for(path) == f'{path}:1: servers[0]: unknown key "nam"; did you mean "name"?'


class TestBadFiles:
    """Each mistake has its exact sentence."""

    @pytest.mark.parametrize(("text", "sentence"), [pytest.param(*case[1:], id=case[0]) for case in MISTAKES])
    def test_message(self, tmp_path, monkeypatch, text, sentence):
        """D5: the message says where and what, in one line; no cause behind it quotes the line, which may be secret."""
        write(tmp_path, text)
        monkeypatch.chdir(tmp_path)
        with pytest.raises(ConfigError) as caught:
            load_config("vllm-watch.yml")

        assert str(caught.value) == f"vllm-watch.yml{sentence.replace('{folder}', str(tmp_path))}"
        assert SECRET not in str(caught.value)
        assert caught.value.__cause__ is None

    @pytest.mark.parametrize(
        ("log", "message"),
        [(b"caf\xe9.log", "not UTF-8 text"), (b"vllm.log\a", "not YAML: the character U+0007 is not allowed")],
    )
    def test_what_is_no_text(self, tmp_path, log, message):
        """Bytes that are no text, and control characters, are said with their line."""
        path = write(tmp_path, b"servers:\n  - name: qwen\n    log: " + log)

        assert message_for(path) == f"{path}:3: {message}"

    @pytest.mark.parametrize(
        "text",
        [
            f"servers: [{{name: a, log: a.log, metrics: 'http://u:{SECRET}@h'}}]",
            f"servers:\n- name: 'u:{SECRET}@h:80'",
            f"listen: 'u:{SECRET}@127.0.0.1:80'\nservers: [{{name: a, log: a}}]",
            f"servers:\n- name: a\n  metrics: 'http://u:{SECRET}@h:99999/'",
            f"servers:\n- name: a\n  metrics: 'http://u:{SECRET}/x@h/'",
            f"servers:\n- name: a\n  metrics: 'http://{SECRET}:x@h/'",
            f"servers:\n- name: a\n  metrics: {{url: 'http://h', interval: 'u:{SECRET}@5s'}}",
        ],
    )
    def test_a_secret_before_an_at_sign(self, tmp_path, text):
        """D5: what stands before an @ is in no message, wherever it was written by mistake."""
        assert SECRET not in message_for(write(tmp_path, text))

    def test_missing(self, tmp_path):
        """A file that is not there is named."""
        path = tmp_path / "none.yml"

        assert message_for(path) == f"{path}: cannot be read: no such file or directory"

    def test_too_large(self, tmp_path):
        """A file of more than 1 MiB is not parsed."""
        path = write(tmp_path, b"#" * (MAX_BYTES + 1))

        assert message_for(path) == f"{path}: larger than 1 MiB"


class TestValues:
    """What single texts mean."""

    @pytest.mark.parametrize(
        ("text", "seconds"),
        [
            ("500ms", 0.5),
            ("5s", 5.0),
            ("2m", 120.0),
            ("1h", 3600.0),
            ("5", 5.0),
            ("0.3", 0.3),
            ("4100ms", 4.1),
            ("2m30s", 150.0),
            ("2 min 30 s", 150.0),
            ("9 d 1 h", 781_200.0),
            ("1h0.5s", 3600.5),
        ],
    )
    def test_duration(self, text, seconds):
        """Durations have a unit or are seconds, and are exact."""
        assert parse_duration(text) == seconds

    @pytest.mark.parametrize(
        "text", ["", "s", "-5s", "+5", "5  s", "2m30", "5S", "5s ", "1e3", ".5", "1_0", "nan", "\u0665s", "5s\n"]
    )
    def test_no_duration(self, text):
        """Anything else is none."""
        with pytest.raises(ValueError, match="expected a duration such as 5s, 500ms or 2m"):
            parse_duration(text)

    @pytest.mark.parametrize(
        ("text", "url"),
        [
            ("http://vllm", "http://vllm/metrics"),
            ("http://vllm:8000/", "http://vllm:8000/metrics"),
            ("https://vllm?x=1", "https://vllm/metrics?x=1"),
            ("http://vllm/a/", "http://vllm/a/"),
            (URL, URL),
        ],
    )
    def test_url(self, text, url):
        """A URL without a path is of /metrics; any other stays as it is."""
        assert parse_url(text) == url

    @given(st.text(alphabet="hunter2:/@#?[]%\\ \t.1\u0665", max_size=30))
    @example("/[hunter2")
    def test_url_is_never_repeated(self, text):
        """Whatever is wrong with a URL, the message does not show it."""
        with pytest.raises(ValueError, match="must not contain a user name") as caught:
            parse_url(f"http://hunter2{text}@vllm")

        assert "hunter2" not in str(caught.value)


class TestOptions:
    """The command line instead of a file."""

    def test_one_server(self):
        """A log and a URL are of one server, which has the usual name."""
        config = config_from_options(["/var/log/vllm.log"], ["http://127.0.0.1:8000"], None)

        assert config.listen == DEFAULT_LISTEN
        assert config.servers == (ServerConfig(name="vllm", log="/var/log/vllm.log", metrics=MetricsConfig(url=URL)),)

    def test_pairs(self):
        """The second URL goes with the second log; what is left over is a server of its own."""
        config = config_from_options(["/a.log", "/b.log", "/c.log"], [URL, "https://vllm"], ":0")

        assert [server.name for server in config.servers] == ["127.0.0.1:8000", "vllm:443", "c"]
        assert [server.log for server in config.servers] == ["/a.log", "/b.log", "/c.log"]
        assert [server.metrics and server.metrics.url for server in config.servers] == [
            URL,
            "https://vllm/metrics",
            None,
        ]
        assert (config.host, config.port) == ("", 0)

    def test_listen_over_a_file(self):
        """The option's address stands in for the file's, and nothing else changes."""
        config = load_config(str(GOOD / "full.yml"))

        assert with_listen(config, ":0") == msgspec.structs.replace(config, listen=":0")

    def test_prometheus_over_a_file(self):
        """The option's Prometheus stands in for the file's, and one that is no URL is an error of the option."""
        config = load_config(str(GOOD / "full.yml"))
        url = "http://127.0.0.1:9090/below"

        assert with_prometheus(config, url) == msgspec.structs.replace(config, prometheus=PrometheusConfig(url=url))
        for wrong in ("ftp://a", "http://a/?x=1"):
            with pytest.raises(UsageError, match=r"^--prometheus: expected "):
                with_prometheus(config, wrong)

    def test_names_are_unique(self):
        """Equal names get numbers that no other name has."""
        logs = ["/1/a.log", "/2/a.log", "/3/a-2.log", "/4/a.log"]

        assert [server.name for server in config_from_options(logs, [], None).servers] == ["a", "a-2", "a-2-2", "a-3"]

    @pytest.mark.parametrize(
        ("logs", "metrics", "listen", "message"),
        [
            ([""], [], None, '--log: expected a path, got ""'),
            (
                [],
                ["http://admin:hunter2@vllm"],
                None,
                "--metrics: a URL must not contain a user name or password; use bearer_token_file",
            ),
            ([], ["vllm:8000"], None, "--metrics: expected a URL that starts with http:// or https://"),
            ([], [URL], "9468", '--listen: expected HOST:PORT such as 127.0.0.1:9468, got "9468"'),
        ],
    )
    def test_mistakes(self, logs, metrics, listen, message):
        """A wrong option is named."""
        with pytest.raises(UsageError) as caught:
            config_from_options(logs, metrics, listen)

        assert str(caught.value) == message


WORDS = [
    *("servers:", "- ", "name: ", "log: ", "metrics:", "url: ", "interval: ", "timeout: ", "tls:", "slo: ", "labels:"),
    *("listen: ", "probe:", "stall_after: ", "a", "5s", "no", "12:30:00", "2024-99-99", URL, "chat", ":0", "~", "="),
    *(
        "\n",
        "\n  ",
        "\n    ",
        "{",
        "}",
        "[",
        "]",
        ", ",
        ": ",
        "? ",
        "&a ",
        "*a",
        "!!binary ",
        "!x ",
        '"',
        "'",
        "#",
        "<<: ",
    ),
    *("---\n", "...", "%YAML 1.1\n", "%TAG ! a\n", "|", ">", "\t", "\\ud800", "\\U99999999", "\0", "\u2028", "\r"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One folder for all examples."""
    return tmp_path_factory.mktemp("config")


class TestAnyFile:
    """Whatever the file holds, it is a configuration or a `ConfigError`."""

    @settings(deadline=None)
    @given(words=st.lists(st.sampled_from(WORDS), max_size=40))
    @example(["%YAML 1.", "9" * 5000, "\n---\n{}"])
    def test_any_yaml(self, folder, words):
        """YAML of any kind raises nothing else."""
        self.load(write(folder, "".join(words).encode(errors="ignore")))

    @settings(deadline=None)
    @given(
        key=st.sampled_from(ServerConfig.__struct_fields__),
        value=st.recursive(
            st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=10), inner, max_size=3)
            ),
            max_leaves=5,
        ),
    )
    def test_any_value(self, folder, key, value):
        """A value of any type under any key raises nothing else."""
        server = {"name": "a", "log": "a.log", key: value}
        self.load(write(folder, msgspec.json.encode({"servers": [server]})))

    def load(self, path):
        """Load a file; if it is wrong, each message is one line that can be printed."""
        try:
            load_config(path)
        except ConfigError as error:
            messages = error.messages
            assert messages
            assert all(message.isprintable() and message.startswith(path) for message in messages)


class TestOtlp:
    """Where the series are pushed."""

    @staticmethod
    def otlp(tmp_path, text):
        """Return the section of a file."""
        return load_config(write(tmp_path, f"otlp: {text}\nservers: [{{name: a, log: a.log}}]\n")).otlp

    def test_the_url_alone(self, tmp_path):
        """A URL without a path has that of OTLP's metrics; all else has its default."""
        assert self.otlp(tmp_path, "http://h:4318") == OtlpConfig(endpoint="http://h:4318/v1/metrics")
