# SPDX-License-Identifier: Apache-2.0
"""Configurations compared by their load tests: what is different, and whether the difference is real."""
