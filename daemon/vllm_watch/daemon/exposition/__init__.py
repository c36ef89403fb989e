# SPDX-License-Identifier: Apache-2.0
"""Snapshots as series: Prometheus text, OpenMetrics, JSON."""
