# SPDX-License-Identifier: Apache-2.0
"""
``vllm-watch grafana``: dashboards into a running Grafana and out of it, and load tests onto them.

Only `client` needs grafana-client.
"""
