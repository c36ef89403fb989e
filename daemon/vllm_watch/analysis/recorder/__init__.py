# SPDX-License-Identifier: Apache-2.0
"""A running server recorded into one file: its log, its /metrics, and the benchmark that ran meanwhile."""
