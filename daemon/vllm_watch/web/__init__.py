# SPDX-License-Identifier: Apache-2.0
"""The HTTP side: pages for Prometheus, for programs and for people."""
