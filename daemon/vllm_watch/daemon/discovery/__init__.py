# SPDX-License-Identifier: Apache-2.0
"""The vLLM servers that run on this machine: how they were started, where they answer, and where their logs go."""
