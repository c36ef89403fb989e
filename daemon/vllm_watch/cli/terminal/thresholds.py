# SPDX-License-Identifier: Apache-2.0
"""Made by `make generate` from alerts/thresholds.yml: change that."""

KV_FULL_RATIO = 0.9
