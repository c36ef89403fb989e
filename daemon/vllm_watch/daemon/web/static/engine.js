// SPDX-License-Identifier: Apache-2.0
// One engine: tiles with what it does now, panels with the rest.

import { element, refill, setBadge, setText } from "./dom.js";
import {
  age,
  areInSeconds,
  count,
  duration,
  latency,
  number,
  numberOf,
  ofMost,
  percent,
  roughly,
  shortened,
  UNKNOWN,
} from "./format.js";
import {
  engineWord,
  fact,
  gauge,
  isWide,
  listOf,
  mean,
  quantileAtLeast,
  quantileBounds,
  quantileIsBelow,
} from "./snapshot.js";
import { KV_FULL_RATIO } from "./limits.js";
import { STAGES, TARGETS } from "./words.js";

const LEVELS = ["0.5", "0.95", "0.99"];
const ALWAYS_SHOWN = new Set(["time_to_first_token", "inter_token", "e2e"]);

class Tile {
  #value = element("span");
  #unit;
  #note = element("div", "note");

  constructor(label, unit = "") {
    this.#unit = element("span", "unit", unit);
    const value = element("div", "value", this.#value, this.#unit);
    this.node = element("div", "tile", element("div", "label", label), value, this.#note);
  }

  update(text, note = "", title = "") {
    setText(this.#value, text);
    this.#unit.hidden = text === UNKNOWN;
    setText(this.#note, text === UNKNOWN ? "" : note);
    this.node.title = title;
  }
}

class Bar {
  #fill = element("div");
  #fullFrom;

  // From the ratio `fullFrom` on the bar has the colour of something that runs out; without one it never has.
  constructor(fullFrom = Infinity) {
    this.#fullFrom = fullFrom;
    this.node = element("div", "bar", this.#fill);
  }

  update(ratio) {
    this.node.style.visibility = ratio === null ? "hidden" : "";
    this.#fill.style.width = `${Math.min(Math.max(ratio ?? 0, 0), 1) * 100}%`;
    this.node.classList.toggle("full", (ratio ?? 0) >= this.#fullFrom);
  }
}

class Facts {
  #values = new Map();

  constructor(labels) {
    this.node = element("dl", "facts");
    for (const label of labels) {
      const value = element("dd");
      this.#values.set(label, value);
      this.node.append(element("dt", "", label), value);
    }
  }

  update(texts) {
    for (const [label, text] of Object.entries(texts)) setText(this.#values.get(label), text);
  }
}

export class EngineTiles {
  #running = new Tile("Running", "requests");
  #waiting = new Tile("Waiting", "requests");
  #cache = new Tile("KV cache");
  #cacheBar = new Bar(KV_FULL_RATIO);
  #generation = new Tile("Generation", "tokens/s");
  #prompt = new Tile("Prompt", "tokens/s");
  #last = new Tile("Last token", "ago");
  #badge = element("span");

  // `name` is shown where a server has several engines.
  constructor(name) {
    const tiles = [this.#running, this.#waiting, this.#cache, this.#generation, this.#prompt, this.#last];
    this.#cache.node.lastChild.before(this.#cacheBar.node);
    this.node = element("div", "engine");
    if (name) this.node.append(element("div", "engine-name", name, this.#badge));
    this.node.append(element("div", "tiles", ...tiles.map((tile) => tile.node)));
  }

  update(engine, at) {
    setBadge(this.#badge, engineWord(engine));
    const from = (name) => provenance(engine.gauges?.[name], at);
    const show = (tile, name, note) => tile.update(number(gauge(engine, name)), note, from(name));
    show(this.#running, "requests_running", ofLimit(fact(engine, "max_running_requests")));
    show(this.#waiting, "requests_waiting", deferred(gauge(engine, "requests_deferred")));
    show(this.#generation, "generation_tokens_per_second", "");
    show(this.#prompt, "prompt_tokens_per_second", cached(engine.prompt_excludes_cached));
    const usage = gauge(engine, "kv_cache_usage_ratio");
    const capacity = fact(engine, "kv_cache_capacity_tokens");
    this.#cache.update(percent(usage), tokensUsed(usage, capacity), from("kv_cache_usage_ratio"));
    this.#cacheBar.update(usage);
    const last = gauge(engine, "last_token_timestamp_seconds");
    this.#last.update(last === null ? UNKNOWN : roughly(at - last), "", from("last_token_timestamp_seconds"));
  }
}

export class EnginePanels {
  #latency = element("tbody");
  #caches = new Facts(["Prefix cache", "External prefix cache", "Multimodal cache"]);
  #setup = new Facts(["Tensor parallel", "Data parallel", "Model load"]);
  #acceptance = new Facts(["Mean acceptance length"]);
  #acceptanceBar = new Bar();
  #drafts = new Facts(["Draft tokens per step", "Accepted", "Drafted", "Accepted drafts"]);
  #positions = element("div", "positions");
  #positionsCaption = element("p", "caption", "Accepted, by position in the draft");
  #capacity = new Facts(["Generation", "KV cache", "Max concurrency", "Max running requests", "Max model length"]);
  #capacityMeaning = element("p", "caption");

  constructor() {
    this.node = element(
      "div",
      "panels",
      section("Latency, last minute", this.#newTable()),
      section("Speculative decoding (MTP)", ...this.#draftsNodes()),
      element("div", "", section("Cache hits", this.#caches.node), section("Set-up", this.#setup.node)),
      section("Capacity", this.#capacity.node, this.#capacityMeaning),
    );
  }

  update(engine, targets) {
    refill(this.#latency, latencyRows(engine, targets), newLatencyRow);
    this.#caches.update({
      "Prefix cache": percent(gauge(engine, "prefix_cache_hit_ratio")),
      "External prefix cache": percent(gauge(engine, "external_prefix_cache_hit_ratio")),
      "Multimodal cache": percent(gauge(engine, "mm_cache_hit_ratio")),
    });
    this.#updateDrafts(engine);
    this.#updateCapacity(engine);
  }

  #newTable() {
    const heads = ["mean", "p50", "p95", "p99"].map((level) => element("th", "number", level));
    const head = element("thead", "", element("tr", "", element("th", "", ""), ...heads));
    return element("table", "", head, this.#latency);
  }

  #draftsNodes() {
    const facts = [this.#acceptance.node, this.#acceptanceBar.node, this.#drafts.node];
    return [...facts, this.#positionsCaption, this.#positions];
  }

  #updateDrafts(engine) {
    const length = gauge(engine, "spec_decode_mean_acceptance_length");
    const drafted = fact(engine, "num_speculative_tokens");
    const least = fact(engine, "num_speculative_tokens_least");
    const isComparable = length !== null && drafted !== null && least === null;
    // Each step gives one token more than it accepts of its draft.
    const limit = isComparable ? ` of ${drafted + 1}` : "";
    this.#acceptance.update({ "Mean acceptance length": `${number(length)}${limit}` });
    this.#acceptanceBar.node.hidden = !isComparable;
    this.#acceptanceBar.update(isComparable ? length / (drafted + 1) : null);
    this.#drafts.update({
      "Draft tokens per step": `${least === null ? "" : `${count(least)} to `}${count(drafted)}`,
      "Accepted": percent(gauge(engine, "spec_decode_acceptance_ratio")),
      "Drafted": perSecond(gauge(engine, "spec_decode_drafted_tokens_per_second")),
      "Accepted drafts": perSecond(gauge(engine, "spec_decode_accepted_tokens_per_second")),
    });
    const positions = listOf(engine.position_acceptance).map(numberOf);
    this.#positionsCaption.hidden = positions.length === 0;
    refill(this.#positions, positions, newPosition);
  }

  #updateCapacity(engine) {
    const concurrency = fact(engine, "max_concurrency");
    const known = Object.values(engine.capacity ?? {})[0]; // On the best basis, or why there is none.
    setText(this.#capacityMeaning, meaningOf(known));
    this.#capacity.update({
      "Generation": perSecond(numberOf(known?.tokens_per_second)),
      "KV cache": tokens(fact(engine, "kv_cache_capacity_tokens")),
      "Max concurrency": concurrency === null ? UNKNOWN : `${number(concurrency)} ×`,
      "Max running requests": count(fact(engine, "max_running_requests")),
      "Max model length": tokens(fact(engine, "max_model_len_tokens")),
    });
    this.#setup.update({
      "Tensor parallel": count(fact(engine, "tensor_parallel_size")),
      "Data parallel": count(fact(engine, "data_parallel_size")),
      "Model load": duration(fact(engine, "model_load_seconds")),
    });
  }
}

function section(title, ...nodes) {
  return element("section", "", element("h3", "", title), ...nodes);
}

function provenance(reading, at) {
  if (!reading || numberOf(reading.at) === null) return "";
  const source = reading.source === "log" ? "the log" : "/metrics";
  return `From ${source}, ${age(at - reading.at)}`;
}

function ofLimit(limit) {
  return limit === null ? "" : `of ${count(limit)}`;
}

function meaningOf(known) {
  const bounds = known?.tokens_per_second ? `Generation: ${number(known.low)} to ${number(known.high)}, ` : "";
  return bounds + (known?.meaning ?? "");
}

function deferred(requests) {
  return requests ? `${count(requests)} deferred` : "";
}

// Says what the tokens per second of a prompt count; nothing where that is not known.
function cached(areExcluded) {
  if (areExcluded === true) return "excluding cached";
  return areExcluded === false ? "including cached" : "";
}

function tokensUsed(usage, capacity) {
  return usage === null || capacity === null ? "" : `${ofMost(usage * capacity, capacity, shortened)} tokens`;
}

function tokens(value) {
  return value === null ? UNKNOWN : `${count(value)} tokens`;
}

function perSecond(value) {
  return value === null ? UNKNOWN : `${number(value)} tokens/s`;
}

function latencyRows(engine, targets) {
  const rows = STAGES.map(([stage, label, meaning]) => {
    const cells = [{ value: mean(engine, stage), below: null, bounds: null }];
    for (const level of LEVELS) {
      const [value, bounds] = [quantileAtLeast(engine, stage, level), quantileBounds(engine, stage, level)];
      cells.push({ value, below: quantileIsBelow(engine, stage, level), bounds });
    }
    return { stage, label, meaning, cells, target: numberOf(targets?.[TARGETS[stage]]) };
  });
  return rows.filter((row) => ALWAYS_SHOWN.has(row.stage) || row.cells.some(({ value }) => value !== null));
}

function newLatencyRow({ label, meaning, cells, target }) {
  const head = element("th", "", label);
  head.scope = "row";
  head.title = meaning;
  const inSeconds = areInSeconds(cells.map(({ value }) => value));
  return element("tr", "", head, ...cells.map((cell) => newLatencyCell(cell, inSeconds, target)));
}

function newLatencyCell({ value, below, bounds }, inSeconds, target) {
  const isOver = value !== null && target !== null && (isWide(bounds) ? value >= target : value > target);
  const cell = element("td", isOver ? "over" : "", latencyText(value, below, bounds, inSeconds));
  if (bounds !== null) cell.title = boundsTitle(bounds);
  if (isOver) cell.title = `Over the target of ${duration(target)}`;
  if (below !== null) cell.title = `In the histogram's first bucket, so it is only known to be below ${duration(below)}`;
  return cell;
}

// Returns a latency with a sign for one that is only known to be below or above a bound, or only roughly.
function latencyText(value, below, bounds, inSeconds) {
  if (below !== null) return `<${latency(below, inSeconds)}`;
  if (isWide(bounds)) return `>${latency(value, inSeconds)}`;
  return bounds === null ? latency(value, inSeconds) : `~${latency(value, inSeconds, 2)}`;
}

function boundsTitle(bounds) {
  const [low, high] = bounds.map(duration);
  if (bounds[1] === null) return `In the histogram's last bucket, so it is only known to be over ${low}`;
  const place = `bucket of the histogram: between ${low} and ${high}`;
  return isWide(bounds) ? `In a wide ${place}` : `Estimated within a ${place}`;
}

function newPosition(ratio, index) {
  const fill = element("div");
  fill.style.height = `${Math.min(ratio ?? 0, 1) * 100}%`;
  const node = element("div", "position", element("div", "column", fill), percent(ratio).replace(" ", "\u202f"));
  node.title = `Draft position ${index}: ${percent(ratio)} accepted`;
  return node;
}
