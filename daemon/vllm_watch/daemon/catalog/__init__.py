# SPDX-License-Identifier: Apache-2.0
"""The closed lists, each written once: series, reasons, states, parts of the daemon."""
