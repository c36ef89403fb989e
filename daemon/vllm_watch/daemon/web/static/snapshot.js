// SPDX-License-Identifier: Apache-2.0
// Reading the snapshot, any part of which may be missing.

import { numberOf } from "./format.js";
import { STATES } from "./states.js";

export function listOf(value) {
  return Array.isArray(value) ? value : [];
}

export function gauge(engine, name) {
  return numberOf(engine.gauges?.[name]?.value);
}

export function fact(engine, name) {
  return numberOf(engine.facts?.[name]);
}

export function quantile(engine, stage, level) {
  return numberOf(engine.quantiles?.[stage]?.[level]);
}

// Returns the bounds of the coarse bucket that a quantile lies in (the upper one may be null), or null for all others.
export function quantileBounds(engine, stage, level) {
  const bounds = engine.quantile_bounds?.[stage]?.[level];
  return Array.isArray(bounds) && numberOf(bounds[0]) !== null ? [bounds[0], numberOf(bounds[1])] : null;
}

const WIDE_FACTOR = 4; // As in state/window.py: from here on nothing is estimated within a bucket.

// Returns whether all that is known of a quantile is that it is above the lower bound of its bucket.
export function isWide(bounds) {
  return bounds !== null && (bounds[1] === null || bounds[1] >= WIDE_FACTOR * bounds[0]);
}

// Returns what is known of a quantile: of one in a wide bucket the lower bound.
export function quantileAtLeast(engine, stage, level) {
  const bounds = quantileBounds(engine, stage, level);
  return isWide(bounds) ? bounds[0] : quantile(engine, stage, level);
}

export function mean(engine, stage) {
  return numberOf(engine.means?.[stage]);
}

// Returns what a quantile is below that lies in its histogram's first bucket, or null for all others.
export function quantileIsBelow(engine, stage, level) {
  if (mean(engine, stage) === null || quantile(engine, stage, level) !== null) return null;
  return numberOf(engine.first_bounds?.[stage]);
}

export function stateOf(engine) {
  return STATES.includes(engine.state) ? engine.state : "unknown";
}

// Returns why a server is in its worst state: the cause that all its engines in that state share, or null.
export function causeOf(server) {
  const engines = listOf(server.engines).filter((engine) => stateOf(engine) === worstState(server));
  const reasons = new Set(engines.map((engine) => engine.cause?.reason));
  return reasons.size === 1 && typeof engines[0].cause?.meaning === "string" ? engines[0].cause : null;
}

// All that a server may be called, worst first. That its operator has stopped it is as quiet as that they put it to sleep.
export const WORDS = STATES.flatMap((state) => (state === "sleeping" ? ["stopped", state] : [state]));

export function wordOf(server) {
  return causeOf(server)?.reason === "stopped" ? "stopped" : worstState(server);
}

export function engineWord(engine) {
  return engine.cause?.reason === "stopped" ? "stopped" : stateOf(engine);
}

export function worstState(server) {
  const states = listOf(server.engines).map(stateOf);
  return STATES.find((state) => states.includes(state)) ?? "unknown";
}

// Returns one point of the charts: sums over the engines, none if an engine's part is not known, and the highest of
// what cannot be summed.
export function pointOf(server, at) {
  const engines = listOf(server.engines);
  const all = (read) => engines.map(read).filter((value) => value !== null);
  const sum = (name) => total(engines.map((engine) => gauge(engine, name)));
  return {
    t: at,
    generation_tokens_per_second: sum("generation_tokens_per_second"),
    prompt_tokens_per_second: sum("prompt_tokens_per_second"),
    requests_running: sum("requests_running"),
    requests_waiting: sum("requests_waiting"),
    kv_cache_usage_ratio: highest(all((engine) => gauge(engine, "kv_cache_usage_ratio"))),
    ttft_p95: highest(all((engine) => quantileAtLeast(engine, "time_to_first_token", "0.95"))),
  };
}

// Tells whether a point of the charts has any value.
export function saysAnything(point) {
  return Object.entries(point).some(([name, value]) => name !== "t" && value !== null);
}

function total(values) {
  return values.length && !values.includes(null) ? values.reduce((sum, value) => sum + value, 0) : null;
}

function highest(values) {
  return values.length ? Math.max(...values) : null;
}
