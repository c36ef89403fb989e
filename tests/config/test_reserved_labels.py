# SPDX-License-Identifier: Apache-2.0
"""No configured label takes the place of a series' own."""

from __future__ import annotations

import pytest

from prometheus_client.parser import text_string_to_metric_families as parse_text
from tests.support.exposition import exported
from tests.support.pages import ScrapedServer, page

from vllm_watch.daemon.catalog.series import SERIES
from vllm_watch.daemon.config.config_file import load_config
from vllm_watch.daemon.config.server_config import RESERVED_LABELS
from vllm_watch.daemon.support.errors import ConfigError


def config_with(tmp_path, label):
    """Return a configuration in which a server has a label."""
    file = tmp_path / "vllm-watch.yml"
    file.write_text(f"servers:\n  - name: a\n    log: /var/log/a.log\n    labels: {{{label}: x}}\n", encoding="utf-8")
    return load_config(str(file))


LABELS = {
    label: {series.name for series in SERIES.values() if label in series.labels}
    for series in SERIES.values()
    for label in series.labels
}
"""All labels, with the series that have them."""

OF_GPUS = {label for label, names in LABELS.items() if all(SERIES[name].labels[0] == "gpu" for name in names)}


@pytest.mark.parametrize("label", sorted({"le", *LABELS} - OF_GPUS))
def test_every_label_of_every_series_is_reserved(tmp_path, label):
    """A label that any series has but those of GPUs, and the one of buckets, is refused with its name."""
    with pytest.raises(ConfigError, match=f'"{label}" is a label of vllm-watch itself'):
        config_with(tmp_path, label)


def test_labels_that_no_series_has_are_free(tmp_path):
    """Others are taken, also those of GPUs alone, whose series have none of a server's labels."""
    assert {"class", "name", "vendor"} <= OF_GPUS
    assert config_with(tmp_path, "class").servers[0].labels == {"class": "x"}
    assert config_with(tmp_path, "team").servers[0].labels == {"team": "x"}


def test_what_is_shown_has_no_label_that_is_not_reserved():
    """The labels of real samples are those of the table: nothing else could be taken away."""
    snapshot = ScrapedServer(slo={"slo_time_to_first_token_seconds": 1.0}).scrape(page(running=1))
    families = parse_text(exported(snapshot).decode())
    shown = {name for family in families for sample in family.samples for name in sample.labels}

    assert shown <= RESERVED_LABELS
