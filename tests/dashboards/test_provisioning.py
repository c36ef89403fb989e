# SPDX-License-Identifier: Apache-2.0
"""The provisioning files are what Grafana reads, and agree with dashboards, alerts and the scrape configuration."""

from __future__ import annotations

import json

from pathlib import Path

import pytest

from tests.support.recordings import ROOT
from tests.support.yaml_files import load_yaml


DASHBOARDS = ROOT.parent / "dashboards"
ALERTS = ROOT.parent / "alerts"
PROVISIONING = DASHBOARDS / "provisioning"

# The keys that Grafana's documentation gives for provisioned data sources and providers of dashboards.
SOURCE_KEYS = {
    *("name", "uid", "type", "access", "url", "user", "database", "orgId", "isDefault", "editable", "version"),
    *("basicAuth", "basicAuthUser", "withCredentials", "jsonData", "secureJsonData"),
}
PROVIDER_KEYS = {
    *("name", "orgId", "folder", "folderUid", "type", "disableDeletion", "allowUiUpdates", "updateIntervalSeconds"),
    "options",
}


def _loaded(path: Path) -> dict:
    return load_yaml(path.read_text(encoding="utf-8"))


def test_the_data_source_is_a_prometheus_with_the_interval_of_the_job():
    """`$__rate_interval` comes from the data source, so its interval is the one that the daemon is scraped with."""
    document = _loaded(PROVISIONING / "datasources" / "vllm-watch.yml")
    (source,) = document["datasources"]
    (job,) = _loaded(ALERTS / "prometheus" / "prometheus.yml")["scrape_configs"]

    assert document["apiVersion"] == 1
    assert set(source) <= SOURCE_KEYS
    assert source["type"] == "prometheus"
    assert source["jsonData"]["timeInterval"] == job["scrape_interval"]


def test_the_provider_reads_a_folder_of_files_into_our_folder():
    """The dashboards come from files into the folder of `grafana push`, and cannot be changed behind their back."""
    document = _loaded(PROVISIONING / "dashboards" / "vllm-watch.yml")
    (provider,) = document["providers"]

    assert document["apiVersion"] == 1
    assert set(provider) <= PROVIDER_KEYS
    assert (provider["type"], provider["folderUid"]) == ("file", "vllm-watch")
    assert provider["allowUiUpdates"] is False
    assert provider["options"]["path"] in (DASHBOARDS / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_dashboard_that_an_alert_links_to_is_there(language):
    """The links of alerts name uids that the dashboards have."""
    uids = {json.loads(path.read_text(encoding="utf-8"))["uid"] for path in (DASHBOARDS / "json" / language).iterdir()}
    rules = _loaded(ALERTS / "rules" / "alerts.yml")
    links = [
        rule["annotations"]["dashboard_url"]
        for group in rules["groups"]
        for rule in group["rules"]
        if "dashboard_url" in rule.get("annotations", {})
    ]

    assert links
    assert {link.split("/d/")[1].split("?")[0] for link in links} <= uids
