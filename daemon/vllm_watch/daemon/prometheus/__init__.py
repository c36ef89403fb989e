# SPDX-License-Identifier: Apache-2.0
"""What a Prometheus, or what speaks like one, is asked, and what its answers are."""
