# SPDX-License-Identifier: Apache-2.0
"""A browser and axe-core find nothing on the pages that would keep somebody from reading them."""

from __future__ import annotations

import html
import json
import re
import subprocess

from pathlib import Path

import pytest

from tests.rendering import reports
from tests.support import tools
from tests.support.samples import sample
from tests.support.waiting import SECONDS

from vllm_watch.analysis.loadtest.load_test import Report
from vllm_watch.analysis.rendering.comparisons_html import comparisons_html
from vllm_watch.analysis.rendering.report_document import report_html


pytestmark = [pytest.mark.slow, pytest.mark.needs_tool("chromium"), pytest.mark.needs_module("axe_core_python")]

PAGES = {
    "a report": lambda: report_html(reports.report()),
    "a report of several runs": lambda: report_html(Report(runs=reports.sweep().runs[:2])),
    "a comparison of several sides": lambda: comparisons_html(reports.comparisons(("draft4", "draft8"))),
}
POLICY = re.compile("<meta http-equiv[^>]*>")
RUN = """
for (const folded of document.querySelectorAll("details")) folded.open = true;
axe.run().then((found) => {
  const violations = found.violations.map((each) => [each.id, each.impact, each.nodes.map((node) => node.html)]);
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  document.body.textContent = JSON.stringify({ isDark, violations, passes: found.passes.length });
});
"""


def looked_at(page, folder, *, is_dark):
    """Return what axe-core says of a page in a browser, everything unfolded: violations, and how many rules passed."""
    import axe_core_python  # noqa: PLC0415  # It is not there where this is skipped.

    rules = (Path(axe_core_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    rules = rules.replace("</script", "<\\/script")
    script = f"<script>{rules}</script><script>{RUN}</script></body>"
    path = folder / "page.html"
    # The page's policy allows no script, which is right: the one that looks at it takes the policy away.
    path.write_text(POLICY.sub("", page).replace("</body>", script), encoding="utf-8")
    command = [
        *(tools.find("chromium"), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
        *("--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={folder}/user"),
        *(
            f"--blink-settings=preferredColorScheme={0 if is_dark else 1}",
            "--virtual-time-budget=60000",
            "--dump-dom",
            path.as_uri(),
        ),
    ]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=5 * SECONDS).stdout
    return json.loads(html.unescape(re.search("<body>(.*)</body>", shown, re.DOTALL)[1]))


@pytest.mark.parametrize(
    ("page", "is_dark"),
    [
        ("a report", False),
        ("a comparison of several sides", True),
        *sample([], [("a report", True), ("a report of several runs", False)]),
    ],
)
def test_axe_finds_nothing(page, is_dark, tmp_path):
    """No rule of axe-core is violated, on a light and on a dark ground."""
    found = looked_at(PAGES[page](), tmp_path, is_dark=is_dark)

    assert is_dark == found["isDark"]
    assert found["passes"] > 20
    assert [] == found["violations"]


def test_axe_would_find_something(tmp_path):
    """The same check finds text that is too pale, and a drawing without a name, on a page of one drawing."""
    page = report_html(reports.report())
    drawing = re.search('<svg[^>]* role="img".*?</svg>', page, re.DOTALL)[0].replace("aria-labelledby", "data-x")
    head = page.partition("<body>")[0].replace("--text: #1a2028", "--text: #e0e0e0")
    small = f"{head}<body><main><h1>A report</h1>{re.sub('<title id.*?</title>', '', drawing)}</main></body></html>"
    found = looked_at(small, tmp_path, is_dark=False)

    assert {"color-contrast", "svg-img-alt"} <= {rule for rule, _, _ in found["violations"]}
