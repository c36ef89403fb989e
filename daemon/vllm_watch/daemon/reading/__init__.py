# SPDX-License-Identifier: Apache-2.0
"""From bytes to events in time: framing, containers' wrapping, lines of one log in order."""
