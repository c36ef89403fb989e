// SPDX-License-Identifier: Apache-2.0
// One server: its head, the tiles of its engines, charts, panels, and where the values come from.

import { AlertList } from "./alerts.js";
import { Chart } from "./chart.js";
import { Configuration } from "./configuration.js";
import { element, newLink, refill, setBadge, setText } from "./dom.js";
import { EnginePanels, EngineTiles } from "./engine.js";
import { Events } from "./events.js";
import { age, count, number, numberOf, percent, roughLatency, span } from "./format.js";
import { Gpus } from "./gpus.js";
import { History } from "./history.js";
import { linkRows } from "./links.js";
import { listOf, saysAnything, wordOf, worstState } from "./snapshot.js";
import { Trouble } from "./trouble.js";
import { FAILURES, plainWords, REJECTIONS } from "./words.js";

export class ServerCard {
  #history = new History();
  #name = element("h2");
  #badge = element("span");
  #about = element("p", "about");
  #trouble = new Trouble();
  #alerts = new AlertList("Alerts");
  #tiles = element("div", "engines");
  #panels = element("div");
  #engines = new Map();
  #engineKeys = "";
  #sources = element("ul", "list");
  #failures = element("ul", "list");
  #events = new Events();
  #links = element("p", "outside");
  #configuration = new Configuration();
  #gpus = new Gpus();
  #tokens = new Chart(
    "Tokens per second",
    [["generation_tokens_per_second", "generated"], ["prompt_tokens_per_second", "prompt"]],
    number,
  );
  #requests = new Chart("Requests", [["requests_running", "running"], ["requests_waiting", "waiting"]], number);
  #cache = new Chart("KV cache in use", [["kv_cache_usage_ratio", "used"]], percent, 1);
  #charts = element("div", "charts");
  #firstToken = new Chart("Time to first token", [["ttft_p95", "p95"]], roughLatency);

  constructor(id) {
    const charts = [this.#tokens, this.#requests, this.#cache, this.#firstToken];
    const header = element("header", "", this.#name, this.#badge, this.#about, this.#configuration.change);
    const sources = element("section", "", element("h3", "", "Sources"), this.#sources);
    const left = element("div", "wide", sources, this.#events.node);
    const heading = element("h3", "", "Failures since the start of counting");
    const failures = element("section", "", heading, this.#failures, this.#links);
    this.node = element("article", "server");
    this.node.id = id;
    this.node.tabIndex = -1; // A link to it takes the keyboard along.
    this.#charts.append(...charts.map((chart) => chart.node));
    const last = element("div", "panels last", left, failures);
    this.node.append(header, this.#trouble.node, this.#alerts.node, this.#tiles, this.#gpus.node, this.#charts, this.#panels, last, this.#configuration.node);
  }

  // `alerts` are those about this server, or null if they are not known.
  update(server, at, alerts) {
    const state = wordOf(server);
    this.node.className = `server ${state}`;
    setText(this.#name, String(server.name ?? "unnamed"));
    setBadge(this.#badge, state);
    setText(this.#about, aboutOf(server, at));
    this.#trouble.update(server, at);
    this.#alerts.update(alerts, at);
    this.#updateEngines(server, at);
    this.#gpus.update(server);
    this.#updateCharts(server, at);
    this.#configuration.update(server, at);
    refill(this.#sources, sourceRows(server, at), newSource);
    refill(this.#failures, failureRows(server), newFailure);
    this.#events.update(server, at);
    refill(this.#links, linkRows(server, at), newLink);
  }

  #updateEngines(server, at) {
    const engines = listOf(server.engines);
    const keys = JSON.stringify(engines.map(keyOf));
    if (keys !== this.#engineKeys) this.#rebuildEngines(engines);
    this.#engineKeys = keys;
    for (const engine of engines) {
      const view = this.#engines.get(keyOf(engine));
      view.tiles.update(engine, at);
      view.panels.update(engine, server.slo);
      view.more.hidden = isSilent(engine);
    }
  }

  #rebuildEngines(engines) {
    const views = engines.map((engine) => newEngineView(engine, engines.length > 1));
    this.#engines = new Map(engines.map((engine, index) => [keyOf(engine), views[index]]));
    this.#tiles.classList.toggle("several", engines.length > 1);
    this.#tiles.replaceChildren(...views.map((view) => view.tiles.node));
    this.#panels.replaceChildren(...views.map((view) => view.more));
  }

  #updateCharts(server, at) {
    const points = this.#history.take(server, at);
    this.#tokens.update(points, at);
    this.#requests.update(points, at);
    this.#cache.update(points, at);
    this.#charts.hidden = !points.some(saysAnything);
    this.#firstToken.update(points, at, numberOf(server.slo?.slo_time_to_first_token_seconds));
  }
}

function keyOf(engine) {
  return JSON.stringify([engine.model_name, engine.engine]);
}

// An engine of which nothing is known but its state.
function isSilent(engine) {
  return ![engine.gauges, engine.quantiles, engine.facts].some((part) => Object.keys(part ?? {}).length);
}

function newEngineView(engine, isOneOfSeveral) {
  const name = isOneOfSeveral ? `Engine ${engine.engine ?? "?"}` : "";
  const panels = new EnginePanels();
  if (!isOneOfSeveral) panels.node.classList.add("single");
  const more = isOneOfSeveral ? element("details", "more", element("summary", "", name), panels.node) : panels.node;
  return { tiles: new EngineTiles(name), panels, more };
}

function aboutOf(server, at) {
  const started = numberOf(server.start_time);
  const parts = [
    server.model_name,
    server.version && `vLLM ${server.version}`,
    started !== null && worstState(server) !== "down" && `up ${span(at - started)}`,
    server.starts > 1 && `${count(server.starts)} starts seen`,
  ];
  return parts.filter(Boolean).join("  ·  ");
}

function titleOf(source) {
  if (source.source === "probe") return source.up === true ? "returns a token" : "returns no token";
  return source.up === true ? "can be read" : "cannot be read";
}

function sourceRows(server, at) {
  return [...rowsOfSources(server, at), ...rowsOfDisagreements(server)];
}

function rowsOfSources(server, at) {
  return listOf(server.sources).map((source) => {
    const last = numberOf(source.last_reading);
    return {
      name: plainWords(source.source ?? "source"),
      isUp: source.up === true,
      isNeeded: source.standing !== "not read",
      title: titleOf(source),
      says: source.explanation ?? plainWords(source.reason ?? ""),
      // Of one that is well the words tell: a log without statistics yet.
      when: last === null ? (isWrong(source) ? "nothing read yet" : "") : age(at - last),
    };
  });
}

function isWrong(source) {
  return source.standing === "FAILED" || source.standing === "not ok";
}

function rowsOfDisagreements(server) {
  const quantities = new Set(listOf(server.engines).flatMap((engine) => listOf(engine.disagreements)));
  if (!quantities.size) return [];
  const what = [...quantities].map(plainWords).join(", ");
  const says = `The log and /metrics have disagreed for minutes: ${what}. Check that both belong to this server.`;
  return [{ name: "both", isUp: false, isNeeded: true, title: "disagree", says, when: "" }];
}

function newSource({ name, isUp, isNeeded, title, says, when }) {
  const sign = element("span", "sign", name);
  sign.title = title;
  const node = element("li", "source", sign, element("span", "", says), element("span", "muted when", when));
  node.classList.toggle("quiet", !isUp && isNeeded);
  node.classList.toggle("unneeded", !isUp && !isNeeded);
  return node;
}

function failureRows(server) {
  const rows = [
    ...rowsOf(server.log_events, (kind) => FAILURES[kind] ?? plainWords(kind)),
    ...rowsOf(server.admission_rejections, (reason) => REJECTIONS[reason] ?? `rejected: ${plainWords(reason)}`),
    ...rowsOf(server.failed_requests, (code) => `requests answered with ${code}`),
  ];
  if (!server.log_events) rows.push({ text: "no log is read" });
  return rows.length ? rows : [{ text: "none" }];
}

function rowsOf(counts, textOf) {
  const seen = Object.entries(counts ?? {}).filter(([, times]) => times > 0);
  return seen.map(([kind, times]) => ({ text: textOf(kind), times }));
}

function newFailure({ text, times }) {
  if (times === undefined) return element("li", "muted", text);
  return element("li", "failure", text, element("b", "", `${count(times)} ×`));
}
