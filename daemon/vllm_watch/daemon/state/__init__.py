# SPDX-License-Identifier: Apache-2.0
"""What is known of a server: pure, from events and times."""
