# SPDX-License-Identifier: Apache-2.0
"""The vllm-watch daemon and its command line."""

__version__ = "0.1.0"
