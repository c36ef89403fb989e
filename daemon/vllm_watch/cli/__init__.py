# SPDX-License-Identifier: Apache-2.0
"""What a person holds in the hand: the commands, `top`, and Grafana."""
