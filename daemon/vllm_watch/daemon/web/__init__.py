# SPDX-License-Identifier: Apache-2.0
"""The HTTP server: endpoints for Prometheus and for programs, and the status page."""
