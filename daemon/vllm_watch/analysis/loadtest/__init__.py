# SPDX-License-Identifier: Apache-2.0
"""Load tests: what ran, what came out, and when the server was in which phase, from whatever recorded it."""
