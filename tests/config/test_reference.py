# SPDX-License-Identifier: Apache-2.0
"""The configuration reference agrees with the code, and what the documents show as a configuration is accepted."""

from __future__ import annotations

import re

from pathlib import Path

import pytest

from tests.support.reference import OF_THE_WEB, examples_of
from tests.support.yaml_files import load_yaml

from vllm_watch.daemon.config.config_file import load_config
from vllm_watch.daemon.config.keys import keys_of
from vllm_watch.daemon.config.model import Config
from vllm_watch.daemon.config.reference import document
from vllm_watch.daemon.config.server_config import SLO_PRESETS
from vllm_watch.daemon.config.texts import COMPLETIONS_PATH, DEFAULT_LISTEN, OTLP_PATH
from vllm_watch.daemon.config.web import _MIN_COST, HEADERS, MAX_COST, WebSections
from vllm_watch.daemon.config.yaml_node import read_yaml
from vllm_watch.daemon.support.errors import ConfigError


ROOT = Path(__file__).parents[2]
HIDDEN = {".venv", ".git"}
ELSEWHERE = {"scrape_configs": "Prometheus", "resources": "kustomize"}
"""Other programs' files that the documents show, by a key that each of them has."""


EXAMPLES = examples_of(document())


def yaml_blocks():
    """Yield each block of YAML in the documents, and where it is."""
    folders = [path for path in ROOT.iterdir() if path.is_dir() and path.name not in HIDDEN]
    for path in sorted([*ROOT.glob("*.md"), *(path for folder in folders for path in folder.rglob("*.md"))]):
        for number, found in enumerate(re.findall(r"(?ms)^```yaml\n(.*?)^```$", path.read_text(encoding="utf-8"))):
            yield pytest.param(found, id=f"{path.relative_to(ROOT)}-{number}")


def load_block(text, folder):
    """Load a block as the daemon would, with `folder` in place of its own; `False` if it is another program's."""
    keys = set(load_yaml(text))
    if keys & set(ELSEWHERE):
        return False
    text = text.replace("/etc/vllm-watch", str(folder))
    (folder / "servers.d").mkdir()
    if keys & set(keys_of(Config)):
        (folder / "vllm-watch.yml").write_text(text)
    else:
        (folder / "servers.d" / "server.yml").write_text(text)
        (folder / "vllm-watch.yml").write_text("servers_dir: servers.d\n")
    config = load_config(str(folder / "vllm-watch.yml"))
    return bool(config.servers or config.kubernetes)


def test_the_reference_is_made_from_the_code():
    """daemon/CONFIGURATION.md is what the code says: `make generate` writes it."""
    assert (ROOT / "daemon" / "CONFIGURATION.md").read_text(encoding="utf-8") == document()


@pytest.mark.parametrize(
    ("section", "name", "example"),
    [pytest.param(*each, id=f"{each[0].__name__}.{each[1]}") for each in EXAMPLES if each[0] not in OF_THE_WEB],
)
def test_each_example_is_accepted(tmp_path, section, name, example):
    """The example of a key of the configuration is a value that the key accepts."""
    (tmp_path / "vllm-watch.yml").write_text(f"{name}: {example}\n")
    (place,) = read_yaml(str(tmp_path / "vllm-watch.yml")).mapping().values()

    keys_of(section)[name].read(place)


def test_no_key_is_left_out():
    """Each key that is supported is in the reference, wherever its section is, in the order of the code."""
    sections = [Config, WebSections]
    for section in sections:  # The list grows meanwhile.
        sections += [key.section for key in keys_of(section).values() if key.section not in {None, *sections}]
        supported = [name for name in keys_of(section) if name not in section.unsupported]
        documented = [name for its, name, _ in EXAMPLES if its is section]
        assert documented
        assert supported * (len(documented) // len(supported)) == documented


def test_the_prose_has_the_numbers_and_words_of_the_code():
    """What the texts of single keys repeat of the code is right."""
    text = document()

    for name, slo in SLO_PRESETS.items():
        assert f"`{name}` is {slo.time_to_first_token:g}s and {slo.time_per_output_token:g}s" in text
    for value in (COMPLETIONS_PATH, OTLP_PATH, DEFAULT_LISTEN, ", ".join(f"`{name}`" for name in HEADERS)):
        assert f"`{value.strip('`')}`" in text
    assert f"its cost is from {_MIN_COST} to {MAX_COST}." in text


@pytest.mark.parametrize("text", list(yaml_blocks()))
def test_each_configuration_in_the_documents_loads(tmp_path, text):
    """A block of YAML in a document is a configuration that the daemon accepts, or another program's file."""
    assert load_block(text, tmp_path) or set(load_yaml(text)) & set(ELSEWHERE)


def test_a_wrong_example_is_found(tmp_path):
    """The example of README.md is really loaded: a key in it that there is not is found."""
    example = next(each.values[0] for each in yaml_blocks() if each.id == "README.md-0")

    with pytest.raises(ConfigError, match="unknown key"):
        load_block(example + "lisen: 127.0.0.1:9468\n", tmp_path)
