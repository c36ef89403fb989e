# SPDX-License-Identifier: Apache-2.0
"""``vllm-watch top``: what it reads, what one moment of it is, and how a terminal shows it."""
