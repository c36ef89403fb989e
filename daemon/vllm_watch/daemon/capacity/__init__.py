# SPDX-License-Identifier: Apache-2.0
"""How many tokens per second an engine sustains, from what it did: for a running server and for a report alike."""
