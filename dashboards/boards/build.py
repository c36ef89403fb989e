# SPDX-License-Identifier: Apache-2.0
"""
Writes ``json/LANGUAGE/UID.json`` from ``boards/`` and ``texts/``: ``make generate``.

The same boards, in English or Chinese, have the same uids: a Grafana has one of the two sets.
"""

from __future__ import annotations

import argparse
import json

from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from boards import capacity, fleet, kv_transfer, load_test, server, sources, spec_decode
from boards.kit.texts import LANGUAGES


JSON = Path(__file__).parents[1] / "json"
_INDENT = 0
"""Spaces: with any, the largest dashboard is larger than what ``kubectl apply`` keeps of a ConfigMap (256 KiB)."""

BOARDS = (fleet, server, spec_decode, capacity, kv_transfer, sources, load_test)


def built(language: str) -> dict[str, str]:
    """Return each dashboard's JSON by its uid."""
    made = [module.dashboard(language) for module in BOARDS]
    return {
        str(board.uid): json.dumps(board, cls=JSONEncoder, indent=_INDENT, sort_keys=True, ensure_ascii=False) + "\n"
        for board in made
    }


def main() -> None:
    """Write the dashboards."""
    parser = argparse.ArgumentParser(description="Write the dashboards' JSON.")
    parser.add_argument("--language", choices=LANGUAGES, help="only this one (default: all)")
    parser.add_argument("--output", type=Path, default=JSON, metavar="FOLDER", help="default: %(default)s")
    arguments = parser.parse_args()
    for language in [arguments.language] if arguments.language else LANGUAGES:
        folder = arguments.output / language
        folder.mkdir(parents=True, exist_ok=True)
        for uid, text in built(language).items():
            (folder / f"{uid}.json").write_text(text, encoding="utf-8")
            print(folder / f"{uid}.json")


if __name__ == "__main__":
    main()
