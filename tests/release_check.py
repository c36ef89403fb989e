# SPDX-License-Identifier: Apache-2.0
"""
What has to be so before a release, and not before: ``make release-check``.

No other run collects these tests. English text is a valid placeholder for a translation until then.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.translation import headings, is_english, untranslated
from tests.test_readmes import TITLES, text_of

from boards.kit.texts import FOLDER, english_texts, read_file
from vllm_watch.daemon.catalog.language import catalogue


@pytest.mark.parametrize("name", sorted(path.name for path in (FOLDER / "en").iterdir()))
def test_no_text_of_the_dashboards_lacks_its_translation(name):
    """Each English text in dashboards/texts has one that is Chinese."""
    translated = read_file(FOLDER / "zh" / name)

    assert [] == [key for key in english_texts(Path(name).stem) if is_english(translated.get(key, "No text"))]


def test_the_chinese_readme_is_chinese():
    """The Chinese README has no English prose, and each title has a translation."""
    titles = [heading.lstrip("# ") for heading in headings(text_of("README.md"))]

    assert [] == list(untranslated(text_of("README.zh-CN.md")))
    assert [] == [title for title in titles if title not in TITLES]


def test_no_text_of_an_answer_lacks_its_translation():
    """Each English text of report, compare and advise has one that is Chinese, but for the name of the KV cache."""
    assert ["KV cache"] == [text for text, said in catalogue("zh").items() if said == text]
