# SPDX-License-Identifier: Apache-2.0
"""What every package uses: clock, errors, printing, logging."""
