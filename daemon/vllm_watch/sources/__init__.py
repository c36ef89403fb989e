# SPDX-License-Identifier: Apache-2.0
"""Where data comes from: log files, /metrics, and hints that something changed."""
