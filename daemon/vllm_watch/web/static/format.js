// SPDX-License-Identifier: Apache-2.0
// Values as text. What is not known is a dash, never a zero.

export const UNKNOWN = "–";

const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

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

export const percent = known((value) => `${formats[value < 0.0995 ? 1 : 0].format(value * 100)} %`);

export const duration = known((seconds) => {
  if (seconds < 1) return `${formats[seconds < 0.01 ? 1 : 0].format(seconds * 1000)} ms`;
  if (seconds < 60) return `${formats[seconds < 10 ? 2 : 1].format(seconds)} s`;
  return span(seconds);
});

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

function unitFor(seconds) {
  return UNITS.find(([size]) => seconds >= size) ?? UNITS[UNITS.length - 1];
}

function digitsFor(size) {
  if (size >= 100) return 0;
  return size >= 10 ? 1 : 2;
}
