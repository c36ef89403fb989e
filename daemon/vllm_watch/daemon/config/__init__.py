# SPDX-License-Identifier: Apache-2.0
"""The configuration: its files, its keys, and what they mean."""
