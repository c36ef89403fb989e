# SPDX-License-Identifier: Apache-2.0
"""What runs beside the server: it reads the log, /metrics and GPUs, and serves what they say."""
