# SPDX-License-Identifier: Apache-2.0
"""The dashboards, each in a module of its own; what they share is in `kit`."""
