# SPDX-License-Identifier: Apache-2.0
"""The daemon: threads, servers watched, reload, shutdown."""
