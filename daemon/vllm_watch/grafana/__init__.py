# SPDX-License-Identifier: Apache-2.0
"""``vllm-watch grafana``: the dashboards into a running Grafana and out of it. Only `client` needs grafana-client."""
