# SPDX-License-Identifier: Apache-2.0
"""The vllm-watch daemon and its command line."""

from importlib.metadata import version


__version__ = version("vllm-watch")
