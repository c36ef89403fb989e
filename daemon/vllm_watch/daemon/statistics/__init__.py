# SPDX-License-Identifier: Apache-2.0
"""Intervals, tests and windows for the values of load tests. Pure: numbers in, numbers out."""
