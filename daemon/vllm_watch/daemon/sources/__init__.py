# SPDX-License-Identifier: Apache-2.0
"""Where data comes from: log files, the journal, /metrics and probes; and how far the logs were read."""
