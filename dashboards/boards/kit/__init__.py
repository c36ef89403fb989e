# SPDX-License-Identifier: Apache-2.0
"""What all dashboards share: colours, texts, queries, kinds of panels, variables, links, annotations."""
