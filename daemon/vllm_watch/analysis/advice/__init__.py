# SPDX-License-Identifier: Apache-2.0
"""Advice on a server's flags: rules that say something only where what was observed is clear, and why."""
