# SPDX-License-Identifier: Apache-2.0
"""Reports and comparisons as text, Markdown, JSON and HTML."""
