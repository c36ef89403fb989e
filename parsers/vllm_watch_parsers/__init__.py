# SPDX-License-Identifier: Apache-2.0
"""What vLLM writes, as typed values: its log line by line, its /metrics body by body. No I/O, no clock, no state."""
