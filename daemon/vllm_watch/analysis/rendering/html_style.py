# SPDX-License-Identifier: Apache-2.0
"""The look of a report's page: on a wide screen, on a phone, in the dark, on paper. Nothing is loaded from anywhere."""

from __future__ import annotations

from vllm_watch.analysis.rendering import svg_styles


_COLORS = """
:root {
  color-scheme: light dark;
  --ground: #ffffff; --inset: #f3f5f8; --text: #1a2028; --muted: #55606c; --line: #d5dce3; --link: #005a8f;
  --good: #00694e; --warning: #a13c00; --unknown: #55606c;
  --starting: #56b4e9; --idle: #c9d1d9; --ramp: #f0d58a; --steady: #7fd1b5; --saturated: #eda35c; --stalled: #e2723b;
  --down: #d3719f; --phase-text: #11161c; --tint: 16%;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --ground: #0f141a; --inset: #1a212a; --text: #e8edf2; --muted: #a3afbb; --line: #313b46; --link: #6cc0f5;
    --good: #35cfa2; --warning: #f4964f; --unknown: #a3afbb;
    --starting: #4799c9; --idle: #7f8b97; --ramp: #b79b45; --steady: #3f9f81; --saturated: #c77a33;
    --stalled: #cf6330; --down: #c76297; --phase-text: #0b0f14; --tint: 20%;
  }
}
"""

_PAGE = """
* { box-sizing: border-box; }
body { max-width: 62rem; margin: 0 auto; padding: 1.25rem 1rem 3rem; background: var(--ground); color: var(--text);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; overflow-wrap: anywhere; }
h1 { margin: 0 0 .25rem; font-size: 1.6rem; line-height: 1.25; }
h2 { margin: 2rem 0 .5rem; padding-top: .75rem; border-top: 1px solid var(--line); font-size: 1.25rem; }
h3, h4, h5 { margin: 1.25rem 0 .4rem; font-size: 1.05rem; }
p { margin: .4rem 0; }
a { color: var(--link); }
.lead, .note, figcaption p { color: var(--muted); }
.note { font-size: .9rem; margin: .3rem 0; }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1rem; margin: .75rem 0 0; padding: 0; list-style: none; }
nav a { display: inline-block; padding: .2rem 0; }
footer { margin-top: 2.5rem; padding-top: .75rem; border-top: 1px solid var(--line); color: var(--muted);
  font-size: .9rem; }
.statements { margin: .5rem 0; padding: 0; list-style: none; }
.statements li { display: flex; gap: .6rem; align-items: baseline; padding: .2rem 0; }
.tone { flex: none; min-width: 5.2rem; padding: 0 .5rem; border: 1px solid currentColor; border-radius: 999px;
  font-size: .82rem; font-weight: 650; text-align: center; }
.good .tone { color: var(--good); } .warning .tone { color: var(--warning); }
.note .tone, .undecided .tone, .unknown .tone { color: var(--unknown); }
.tables { display: flex; flex-wrap: wrap; gap: 0 2.5rem; align-items: flex-start; }
.table { max-width: 100%; }
.scroll { overflow-x: auto; margin: .5rem 0; }
table { border-collapse: collapse; font-size: .94rem; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
caption { padding: .2rem 0; text-align: left; font-weight: 600; }
th, td { padding: .22rem .75rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top;
  font-weight: 400; }
thead th, thead td { border-bottom: 2px solid var(--muted); font-weight: 600; vertical-align: bottom; }
th:first-child, td:first-child { padding-left: .25rem; }
.text { text-align: left; overflow-wrap: anywhere; }
thead .text { overflow-wrap: normal; }
td.text { min-width: 8rem; }
th[scope=row] { text-align: left; }
th[scope=rowgroup] { padding-top: .8rem; text-align: left; font-weight: 600; }
td { white-space: nowrap; } td.text { white-space: normal; }
.unit { display: block; color: var(--muted); font-size: .85em; font-weight: 400; }
.verdict { font-weight: 650; } .verdict.better { color: var(--good); } .verdict.worse { color: var(--warning); }
pre { margin: .5rem 0; padding: .5rem .75rem; overflow-x: auto; border: 1px solid var(--line); }
details { margin: .5rem 0; }
summary { cursor: pointer; padding: .25rem 0; color: var(--link); }
details.run { margin: 1rem 0; border-top: 1px solid var(--line); }
details.run > summary { color: inherit; }
details.run > summary h2 { display: inline-block; margin: .5rem 0; padding: 0; border: 0; }
.run h3 { padding-top: .5rem; }
"""

_FIGURES = """
figure { margin: 1rem 0 1.5rem; break-inside: avoid; }
.drawing { display: block; width: calc(100% - 5.4rem); margin: .5rem 1.6rem 0 3.8rem; overflow: visible; }
.legend { display: flex; flex-wrap: wrap; gap: .1rem 1.2rem; margin: .3rem 0; padding: 0; list-style: none;
  font-size: .94rem; }
.sample { margin-right: .4rem; vertical-align: middle; overflow: visible; }
.swatch { display: inline-block; width: 1.1rem; height: .8rem; margin-right: .4rem; border: 1px solid var(--muted);
  background: var(--phase);
  print-color-adjust: exact; -webkit-print-color-adjust: exact; }
.drawing text { fill: var(--text); font-size: 13px; paint-order: stroke; stroke: var(--ground); stroke-width: 3px;
  stroke-linejoin: round; }
.drawing .tick, .drawing .axis-title { fill: var(--muted); font-size: 12px; stroke: none; }
.drawing .panel-title { font-weight: 600; }
.drawing .phase-name { fill: var(--phase-text); font-size: 12px; stroke: none; }
.drawing .event-number { font-size: 12px; }
.line { fill: none; stroke: var(--c); stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: butt;
  vector-effect: non-scaling-stroke; }
.line.s0 { stroke-linecap: round; }
.mark { fill: var(--c); stroke: var(--ground); stroke-width: 1; }
.bar { fill: var(--c); }
.grid { stroke: var(--line); stroke-width: 1; shape-rendering: crispEdges; }
.frame { stroke: var(--muted); stroke-width: 1; shape-rendering: crispEdges; }
.interval { stroke: var(--c); stroke-width: 2.5; }
.zero { stroke: var(--text); stroke-width: 1.2; shape-rendering: crispEdges; }
.percentile { stroke: var(--text); stroke-width: 1.2; stroke-dasharray: 4 3; }
.between { fill: var(--text); opacity: .1; }
.objective { stroke: var(--warning); stroke-width: 1.5; stroke-dasharray: 1 3; }
.event { stroke: var(--muted); stroke-width: 1; stroke-dasharray: 2 3; }
.phase, .strip { fill: var(--phase); } .phase { opacity: var(--tint); }
.starting { --phase: var(--starting); } .idle { --phase: var(--idle); } .ramp { --phase: var(--ramp); }
.steady { --phase: var(--steady); } .saturated { --phase: var(--saturated); } .stalled { --phase: var(--stalled); }
.down { --phase: var(--down); } .unknown { --phase: transparent; }
@media (max-width: 40rem) {
  .minor { display: none; }
  h1 { font-size: 1.35rem; }
  .drawing { width: calc(100% - 4rem); margin: .5rem 1rem 0 3rem; }
  th, td { padding: .22rem .45rem; }
}
"""

_PAPER = """
@media print {
  html { font-size: 75%; }
  body { max-width: none; padding: 0; font-size: 1rem; line-height: 1.35; }
  h2 { margin-top: 1.2rem; }
  th, td { padding: .1rem .5rem; }
  nav { display: none; }
  h2, h3, h4 { break-after: avoid; }
  tr, li { break-inside: avoid; }
  .scroll { overflow: visible; }
  .phase, .strip, .bar, .mark { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  figure details { display: none; }
  details.run > summary { list-style: none; }
  details::details-content { content-visibility: visible; display: block; block-size: auto; }
}
@page { margin: 14mm; }
"""


def css() -> str:
    """Return the style sheet."""
    return _COLORS + svg_styles.css() + _PAGE + _FIGURES + _PAPER
