// SPDX-License-Identifier: Apache-2.0
// A small chart of one or two curves over the last hour. The first is a line, the second an area: colour only helps.

import { element, setText, shape } from "./dom.js";
import { age, roughly } from "./format.js";

const WIDTH = 300;
const HEIGHT = 96;
const LEAST_SPAN = 60;
const LEAST_GAP = 60;
const GAP_STEPS = 5;
const ROUNDING = 30;
const KEY_STEPS = 60;
const KEYS = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageUp: 10, PageDown: -10, Home: -KEY_STEPS };
const CLASSES = ["first", "second"];

export class Chart {
  #format;
  #curves;
  #highest;
  #points = [];
  #now = 0;
  #pointed = null;
  #topValue = element("div", "top-value");
  #start = element("span");
  #end = element("span");
  #target = shape("line", { class: "target", x1: 0, x2: WIDTH, y1: -9, y2: -9 });
  #cursor = shape("line", { class: "cursor", x1: -9, x2: -9, y1: 0, y2: HEIGHT });
  #svg;
  #plot;

  // `curves` are pairs of a point's key and its label; `highest` fixes the top of the scale.
  constructor(title, curves, format, highest = null) {
    this.#format = format;
    this.#highest = highest;
    this.#curves = curves.map(([key, label], index) => newCurve(key, label, CLASSES[index]));
    this.#svg = this.#newDrawing();
    const plot = element("div", "plot", this.#svg, this.#topValue);
    plot.addEventListener("pointermove", (event) => this.#point(event.clientX));
    plot.addEventListener("pointerleave", () => this.#pointAt(null));
    plot.addEventListener("keydown", (event) => this.#press(event));
    plot.addEventListener("blur", () => this.#pointAt(null));
    // For the keyboard and for screen readers it is a slider through the hour.
    Object.assign(plot, { tabIndex: 0, role: "slider", ariaLabel: title, ariaValueMin: "0", ariaValueMax: "100" });
    this.#plot = plot;
    const legend = element("div", "legend", ...this.#curves.map((curve) => curve.entry));
    this.node = element("div", "chart", element("h3", "", title), legend, plot);
    this.node.append(element("div", "span", this.#start, this.#end));
  }

  // Shows the points, oldest first; `target` is a value to hold the curves against, or null.
  update(points, now, target = null) {
    this.#points = points;
    this.#now = now;
    const top = this.#highest ?? niceTop(Math.max(target ?? 0, this.#peak()));
    setText(this.#topValue, this.#format(top));
    this.#target.setAttribute("y1", target === null ? -9 : height(target, top));
    this.#target.setAttribute("y2", target === null ? -9 : height(target, top));
    this.#target.style.display = target === null ? "none" : "";
    for (const curve of this.#curves) this.#draw(curve, top);
    this.#describe();
  }

  #newDrawing() {
    const grid = [0.5, HEIGHT / 2].map((y) => shape("line", { class: "grid", x1: 0, x2: WIDTH, y1: y, y2: y }));
    const box = { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" };
    return shape("svg", box, ...grid, this.#target, this.#cursor, ...this.#shapes());
  }

  #shapes() {
    const back = this.#curves.slice(1).map((curve) => curve.area);
    return [...back, ...this.#curves.map((curve) => curve.path).reverse()];
  }

  #peak() {
    const values = this.#curves.flatMap((curve) => this.#points.map((point) => point[curve.key] ?? 0));
    return values.reduce((peak, value) => Math.max(peak, value), 0);
  }

  #span() {
    return this.#points.length ? Math.max(this.#now - this.#points[0].t, LEAST_SPAN) : LEAST_SPAN;
  }

  #x(t) {
    return WIDTH * (1 - (this.#now - t) / this.#span());
  }

  #draw(curve, top) {
    const spotOf = (point) => [this.#x(point.t), height(point[curve.key], top)];
    const runs = this.#runsOf(curve.key).map((run) => run.map(spotOf));
    curve.path.setAttribute("d", runs.map(lineThrough).join(""));
    curve.area.setAttribute("d", runs.map(areaUnder).join(""));
  }

  // Returns the stretches of points without a gap. How far apart points lie depends on a replay's speed.
  #runsOf(key) {
    const gap = Math.max(LEAST_GAP, (GAP_STEPS * this.#span()) / this.#points.length);
    const runs = [];
    let last = -Infinity;
    for (const point of this.#points) {
      const isKnown = (point[key] ?? null) !== null;
      if (isKnown && point.t - last > gap) runs.push([]);
      if (isKnown) runs[runs.length - 1].push(point);
      last = isKnown ? point.t : -Infinity;
    }
    return runs;
  }

  #point(clientX) {
    const box = this.#svg.getBoundingClientRect();
    this.#pointAt(box.width ? (clientX - box.left) / box.width : null);
  }

  // Points at a place from 0, the oldest, to 1, or at none, which is the present.
  #pointAt(place) {
    this.#pointed = place;
    this.#describe();
  }

  // The arrows go through the hour; End and Escape go back to the present.
  #press(event) {
    const step = KEYS[event.key];
    if (step !== undefined) {
      event.preventDefault();
      const place = Math.max((this.#pointed ?? 1) + step / KEY_STEPS, 0);
      this.#pointAt(place < 1 ? place : null);
    } else if (this.#pointed !== null && ["End", "Escape"].includes(event.key)) {
      event.preventDefault();
      event.stopPropagation();
      this.#pointAt(null);
    }
  }

  #nearest() {
    if (this.#pointed === null) return null;
    const t = this.#now - (1 - this.#pointed) * this.#span();
    return this.#points.reduce((best, point) => (closer(point, best, t) ? point : best), null);
  }

  // Writes the values at the cursor, or the present ones.
  #describe() {
    const pointed = this.#nearest();
    const point = pointed ?? this.#points[this.#points.length - 1] ?? {};
    for (const curve of this.#curves) setText(curve.value, this.#format(point[curve.key] ?? null));
    const x = pointed ? this.#x(pointed.t) : -9;
    this.#cursor.setAttribute("x1", x);
    this.#cursor.setAttribute("x2", x);
    this.#cursor.style.display = pointed ? "" : "none";
    setText(this.#start, `−${roughly(this.#span() + ROUNDING)}`);
    const when = pointed ? age(this.#now - pointed.t) : "now";
    setText(this.#end, when);
    this.#plot.ariaValueNow = String(Math.round((this.#pointed ?? 1) * 100));
    this.#plot.ariaValueText = `${when}: ${this.#curves.map((curve) => `${curve.label} ${curve.value.textContent}`).join(", ")}`;
  }
}

function newCurve(key, label, className) {
  const path = shape("path", { class: `curve ${className}` });
  const area = shape("path", { class: `area ${className}` });
  const sample = element("i", `sample ${className}`);
  const value = element("b");
  return { key, label, path, area, value, entry: element("span", "", sample, label, value) };
}

// "h0" makes a dot of a point that has no neighbours.
function lineThrough(spots) {
  return `M${spots.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L")}h0`;
}

function areaUnder(spots) {
  const [start, end] = [spots[0][0], spots[spots.length - 1][0]];
  return `${lineThrough(spots)}L${end.toFixed(1)} ${HEIGHT}L${start.toFixed(1)} ${HEIGHT}Z`;
}

function closer(point, best, t) {
  return best === null || Math.abs(point.t - t) < Math.abs(best.t - t);
}

function height(value, top) {
  return HEIGHT * (1 - Math.min(value / top, 1));
}

// Returns a round number that is not below the peak.
function niceTop(peak) {
  if (peak <= 0) return 1;
  const unit = 10 ** Math.floor(Math.log10(peak));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((step) => step * unit >= peak) * unit;
}
