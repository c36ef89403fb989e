# SPDX-License-Identifier: Apache-2.0
"""The configuration reference agrees with the code, and what the documents show as a configuration is accepted."""

from __future__ import annotations

import re

from pathlib import Path

import msgspec
import pytest

from tests.support.reference import OF_THE_WEB, REFERENCE, SECTIONS, rows
from tests.support.yaml_files import load_yaml

from vllm_watch.daemon.config.config_file import load_config
from vllm_watch.daemon.config.keys import keys_of
from vllm_watch.daemon.config.model import Config
from vllm_watch.daemon.config.server_config import SLO_PRESETS
from vllm_watch.daemon.config.texts import COMPLETIONS_PATH, DEFAULT_LISTEN, OTLP_PATH
from vllm_watch.daemon.config.web import _MIN_COST, HEADERS, MAX_COST
from vllm_watch.daemon.config.yaml_node import read_yaml
from vllm_watch.daemon.support.errors import ConfigError


ROOT = Path(__file__).parents[2]
HIDDEN = {".venv", ".git"}
ELSEWHERE = {"scrape_configs": "Prometheus", "resources": "kustomize"}
"""Other programs' files that the documents show, by a key that each of them has."""


ROWS = rows()


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


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row.section.__name__}.{row.key}") for row in ROWS])
def test_each_row_says_what_the_code_does(row, tmp_path):
    """Example, bounds and words of a key are values that it accepts; what is beyond the bounds is not; the default."""

    def read(text):
        (tmp_path / "vllm-watch.yml").write_text(f"{row.key}: {text}\n")
        (place,) = read_yaml(str(tmp_path / "vllm-watch.yml")).mapping().values()
        return keys_of(row.section)[row.key](place)

    (field,) = (field for field in msgspec.structs.fields(row.section) if field.name == row.key)
    if row.section not in OF_THE_WEB:  # Whose files are opened.
        read(row.example)
    if bounds := re.fullmatch(r"duration, (\S+) to (\S+)", row.expects):
        shortest, longest = map(read, bounds.groups())
        for beyond in (shortest - 0.001, longest + 0.001):
            with pytest.raises(ConfigError, match="expected a duration from"):
                read(f"{beyond:.3f}")
    if re.fullmatch(r"`[^`]+`(, `[^`]+`)+", row.expects):
        assert all(read(word) == word for word in re.findall(r"`([^`]+)`", row.expects))
    if row.default == "required":
        assert field.required
    elif row.default == "-":
        assert not isinstance(field.default, str | int | float)
    else:
        default = row.default.strip("`")
        assert field.default == (read(default) if isinstance(field.default, float) else type(field.default)(default))


def test_no_key_is_left_out():
    """Each key is in the reference, wherever its section is, in the order of the code."""
    assert {row.section for row in ROWS} == set(SECTIONS.values())
    for section in SECTIONS.values():
        assert [row.key for row in ROWS if row.section is section] == list(keys_of(section))


def test_the_prose_has_the_numbers_and_words_of_the_code():
    """What the texts of single keys repeat of the code is right."""
    text = REFERENCE.read_text(encoding="utf-8")

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
