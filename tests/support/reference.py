# SPDX-License-Identifier: Apache-2.0
"""The examples of the configuration's reference."""

from __future__ import annotations

import re

from vllm_watch.daemon.config.reference import section_of
from vllm_watch.daemon.config.web import HttpServer, WebSections, WebTls


OF_THE_WEB = {WebSections, WebTls, HttpServer}
"""The sections of the web configuration file."""


def examples_of(document):
    """Return section, key and example of each row of a reference."""
    examples, section = [], None
    for line in document.splitlines():
        if line.startswith("## "):
            section = section_of(line.removeprefix("## "))
        row = re.fullmatch(r"\| `(\w+)` \| \S.* \| (?:`[^`]*`|-|required) \| `([^`]+)` \| .*\. \|", line)
        if section is not None and row is not None:
            examples.append((section, row[1], row[2]))
    return examples
