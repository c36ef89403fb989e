# SPDX-License-Identifier: Apache-2.0
"""How what vllm-watch writes into a Grafana is recognised."""

from __future__ import annotations


TAG = "vllm-watch"
"""On every dashboard, and on every region of a load test."""
