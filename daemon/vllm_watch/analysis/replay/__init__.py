# SPDX-License-Identifier: Apache-2.0
"""Recordings and old logs, replayed in virtual time."""
