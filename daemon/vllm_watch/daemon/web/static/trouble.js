// SPDX-License-Identifier: Apache-2.0
// What is wrong with a server: its state, since when, what that means, and what its runbook says to do first.

import { element, newLink, refill, setText } from "./dom.js";
import { numberOf, span } from "./format.js";
import { causeOf, listOf, stateOf, WORDS, wordOf, worstState } from "./snapshot.js";
import { FIRST_STEPS, MEANINGS } from "./states.js";

const NAMED = 5;

export class Trouble {
  #what = element("p", "what");
  #meaning = element("p", "meaning");
  #steps = element("ol", "steps");
  #runbook = element("p", "outside");
  #help = element("div", "help", element("h3", "", "What to do first"), this.#steps, this.#runbook);

  constructor() {
    this.node = element("section", "trouble", this.#what, this.#meaning, this.#help);
  }

  update(server, at) {
    const state = worstState(server);
    const first = FIRST_STEPS[state];
    this.node.hidden = !MEANINGS[state];
    this.node.classList.toggle("bad", Boolean(first));
    this.#help.hidden = !first;
    setText(this.#what, first ? whatOf(server, state, at) : "");
    const cause = causeOf(server);
    setText(this.#meaning, cause ? `${cause.meaning} (${cause.reason})` : MEANINGS[state] ?? "");
    refill(this.#steps, first?.by_cause[cause?.reason] ?? first?.steps ?? [], (text) => element("li", "", ...withCode(text)));
    refill(this.#runbook, first ? [{ title: `All of it: runbook ${first.runbook}`, url: first.url }] : [], newLink);
  }
}

// All servers that need somebody, by state, the worst first; each name leads to its card.
export class Troubles {
  #node;
  #announced;

  // `announced` is what a screen reader reads out: it has no ages, which change all the time.
  constructor(node, announced) {
    this.#node = node;
    this.#announced = announced;
  }

  update(list, at) {
    const groups = WORDS.filter((word) => FIRST_STEPS[word]).map((state) => groupOf(list, state, at));
    const bad = groups.filter(({ servers }) => servers.length > 0);
    setText(this.#announced, bad.map(({ state, servers }) => `${state}: ${servers.map(({ name }) => name).join(", ")}`).join(". "));
    this.#node.hidden = list.length < 2 || bad.length === 0;
    refill(this.#node, bad, newGroup);
  }
}

function groupOf(list, state, at) {
  const servers = list.filter((server) => wordOf(server) === state);
  return { state, servers: servers.map((server) => ({ name: String(server.name), since: lastsOf(server, state, at) })) };
}

function newGroup({ state, servers }) {
  const node = element("p", "group", element("span", `badge ${state}`, `${servers.length} ${state}`));
  for (const { name, since } of servers.slice(0, NAMED)) {
    const link = element("a", "", name);
    link.href = `#server-${encodeURIComponent(name)}`;
    link.dataset.server = name;
    node.append(element("span", "", link, since ? element("span", "muted", ` ${since}`) : ""));
  }
  if (servers.length > NAMED) node.append(element("span", "muted", `and ${servers.length - NAMED} more`));
  return node;
}

// "Stalled for 4 min, since 14:03:12", with the engines where only some of several are.
function whatOf(server, state, at) {
  const since = sinceOf(server, state);
  const all = listOf(server.engines);
  const engines = all.filter((engine) => stateOf(engine) === state).map((engine) => engine.engine ?? "?");
  const word = wordOf(server);
  const which = engines.length < all.length ? `Engine ${engines.join(", ")} of ${all.length}: ${word}` : capital(word);
  const begin = since?.isExact ? `, since ${timeOf(since.at, at)}` : "";
  return `${which} ${lastsOf(server, state, at)}${begin}`;
}

// "for 4 min", or "for at least 4 min" where vllm-watch has not seen the beginning.
function lastsOf(server, state, at) {
  const since = sinceOf(server, state);
  return since === null ? "" : `for ${since.isExact ? "" : "at least "}${span(Math.max(at - since.at, 0))}`;
}

// Since when the first of the engines in this state is in it, or null if that is not known.
function sinceOf(server, state) {
  const engines = listOf(server.engines).filter((engine) => stateOf(engine) === state);
  const known = engines.map((engine) => engine.state_since).filter((since) => numberOf(since?.at) !== null);
  const first = known.reduce((best, since) => (best === null || since.at < best.at ? since : best), null);
  return first && { at: first.at, isExact: first.is_exact === true };
}

// The time of day in this browser's zone, with its name; with the date, if it was not today.
function timeOf(moment, at) {
  const time = new Date(moment * 1000);
  const isToday = time.toDateString() === new Date(at * 1000).toDateString();
  const text = time.toLocaleString("en-GB", { timeStyle: "medium", ...(isToday ? {} : { dateStyle: "medium" }) });
  const named = new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" }).formatToParts(time);
  return `${text} ${named.find((part) => part.type === "timeZoneName").value}`;
}

function capital(word) {
  return word[0].toUpperCase() + word.slice(1);
}

// Code is between back quotes.
function withCode(text) {
  return text.split("`").map((part, index) => (index % 2 ? element("code", "", part) : part));
}
