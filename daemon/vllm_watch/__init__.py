# SPDX-License-Identifier: Apache-2.0
"""The vllm-watch daemon and its command line."""
