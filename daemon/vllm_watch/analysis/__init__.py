# SPDX-License-Identifier: Apache-2.0
"""What answers questions afterwards: load tests, comparisons, advice, recordings."""
