// SPDX-License-Identifier: Apache-2.0
// Values as text. What is not known is a dash, never a zero.

export const UNKNOWN = "–";

const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

const PREFIXES = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
const ALL = 0.9995; // From here on a ratio of three digits is 1.

const formats = [0, 1, 2].map((digits) => new Intl.NumberFormat("en", { maximumFractionDigits: digits }));

// Returns a number, or null for all that is none.
export function numberOf(value) {
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

function known(format) {
  return (value) => (numberOf(value) === null ? UNKNOWN : format(value));
}

export const number = known((value) => formats[digitsFor(Math.abs(value))].format(value));

export const count = known((value) => formats[0].format(value));

// As `top` and `once` write it (catalog/number_texts.py), and so is what is `shortened`.
export const percent = known((value) => `${share(value)} %`);

// The same without the sign, where the head has it.
export const share = known((value) => (value * 100).toFixed(Math.abs(value) < ALL ? 1 : 0));

// Returns bytes in GiB, without the unit.
export const gibibytes = known((value) => shortened(value / 2 ** 30));

// Returns a frequency in MHz, without the unit.
export const megahertz = known((value) => count(value / 1e6));

// Returns a number that may be large with three digits: 512, 9.99k, 93.9k, 1.23M.
export const shortened = known((value) => {
  const [unit, prefix] = PREFIXES.find(([each]) => Math.abs(value) >= each * ALL) ?? [1, ""];
  return `${threeDigits(value / unit)}${prefix}`;
});

// Returns how much there is of what there can be, "12 of 64"; the value alone if that is not known.
export function ofMost(value, most, text = count) {
  return numberOf(value) === null || numberOf(most) === null ? text(value) : `${text(value)} of ${text(most)}`;
}

export const duration = known((seconds) => {
  if (seconds < 1) return `${formats[seconds < 0.01 ? 1 : 0].format(seconds * 1000)} ms`;
  if (seconds < 60) return `${formats[seconds < 10 ? 2 : 1].format(seconds)} s`;
  return span(seconds);
});

const LONG = 9.995; // From here on a latency is written in seconds.
const LEAST_SECONDS = 0.1; // Less has three decimals in seconds.

// Returns whether latencies beside each other are written in seconds: all of them, if one is that long.
export function areInSeconds(values) {
  return values.some((value) => value >= LONG);
}

// Returns a latency as `top` writes it (terminal/cells.py), but always with its unit: 58.3 ms, 1,250 ms, 12.5 s.
export function latency(seconds, isInSeconds, digits = 3) {
  if (numberOf(seconds) === null) return UNKNOWN;
  const unit = isInSeconds ? "s" : "ms";
  const rounded = Number(seconds.toPrecision(digits));
  if (rounded === 0) return `0 ${unit}`;
  if (isInSeconds && rounded < LEAST_SECONDS) return `${rounded.toFixed(3)} s`;
  const value = isInSeconds ? rounded : rounded * 1000;
  const decimals = Math.max(digits - 1 - Math.floor(Math.log10(value) + 1e-9), 0);
  const format = { minimumFractionDigits: decimals, maximumFractionDigits: decimals };
  return `${value.toLocaleString("en", format)} ${unit}`;
}

// Returns a latency that may be an estimate with two digits, where no sign tells: 74 ms, 160 s.
export const roughLatency = known((seconds) => latency(seconds, areInSeconds([seconds]), 2));

export const age = known((seconds) => (seconds < 1 ? "now" : `${roughly(seconds)} ago`));

// Returns a time span in its largest unit.
export const roughly = known((seconds) => {
  if (seconds < 1) return "< 1 s";
  const [size, name] = unitFor(seconds);
  return `${Math.floor(seconds / size)} ${name}`;
});

// Returns a time span in its two largest units.
export const span = known((seconds) => {
  const [size] = unitFor(seconds);
  const rest = seconds % size;
  return size > 1 && rest >= unitFor(rest)[0] ? `${roughly(seconds)} ${roughly(rest)}` : roughly(seconds);
});

function threeDigits(value) {
  const rounded = Number(value.toPrecision(3));
  return rounded === 0 ? "0" : rounded.toFixed(Math.max(2 - Math.floor(Math.log10(Math.abs(rounded))), 0));
}

function unitFor(seconds) {
  return UNITS.find(([size]) => seconds >= size) ?? UNITS[UNITS.length - 1];
}

function digitsFor(size) {
  if (size >= 100) return 0;
  return size >= 10 ? 1 : 2;
}
