# SPDX-License-Identifier: Apache-2.0
"""Which alerts would have fired over recorded values: the rules, evaluated by Prometheus' own tool in virtual time."""
