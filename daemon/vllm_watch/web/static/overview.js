// SPDX-License-Identifier: Apache-2.0
// All servers at a glance, worst first: a few as links to their cards, many as rows that can be searched and opened.

import { element, setBadge, setText } from "./dom.js";
import { duration, number, percent } from "./format.js";
import { pointOf, worstState } from "./snapshot.js";
import { STATES } from "./states.js";

const MANY = 12;
const COLUMNS = [
  ["running", "requests_running", number],
  ["waiting", "requests_waiting", number],
  ["KV cache", "kv_cache_usage_ratio", percent],
  ["tokens/s", "generation_tokens_per_second", number],
  ["TTFT p95", "ttft_p95", duration],
];

export class Overview {
  #node;
  #find = element("input", "find");
  #head = element("div", "row head", element("span", "", "server"), element("span", "", "state"));
  #rows = element("div", "rows");
  #known = new Map();
  #opened = new Set();
  #isLong = false;

  // `changed` is called when other servers are to be shown.
  constructor(node, changed) {
    this.#node = node;
    this.#find.type = "search";
    this.#find.placeholder = "Filter by name, model or state";
    this.#find.setAttribute("aria-label", this.#find.placeholder);
    this.#find.addEventListener("input", changed);
    this.#head.append(...COLUMNS.map(([title]) => element("span", "value", title)));
    this.#node.append(this.#find, this.#head, this.#rows);
    this.#rows.addEventListener("click", (event) => this.#open(event, changed));
  }

  update(list) {
    this.#isLong = list.length > MANY;
    this.#node.hidden = list.length < 2;
    this.#node.classList.toggle("long", this.#isLong);
    this.#find.hidden = this.#head.hidden = !this.#isLong;
    this.#forget(list.map(nameOf));
    this.#order(worstFirst(list));
    for (const server of list) this.#fill(this.#known.get(nameOf(server)), server);
  }

  // Returns whose last hour to ask for: of many servers it would be megabytes every two seconds.
  query() {
    if (!this.#isLong) return "";
    const names = [...this.#opened].map((name) => `&history=${encodeURIComponent(name)}`);
    return `?history=${names.join("")}`;
  }

  // Tells whether a server's card is to be shown: of many only those that were opened.
  shows(server) {
    return !this.#isLong || this.#opened.has(nameOf(server));
  }

  #open(event, changed) {
    const row = event.target.closest("a");
    if (!row || !this.#isLong) return;
    if (this.#opened.delete(row.dataset.name)) event.preventDefault();
    else this.#opened.add(row.dataset.name);
    // The one that was opened first closes, so that the page stays light.
    if (this.#opened.size > MANY) this.#opened.delete([...this.#opened][0]);
    changed();
  }

  #forget(names) {
    for (const [name, row] of this.#known) {
      if (!names.includes(name)) {
        row.node.remove();
        this.#known.delete(name);
      }
    }
  }

  #add(name) {
    const row = newRow(name);
    this.#known.set(name, row);
    if (row.node.hash === location.hash) this.#opened.add(name);
  }

  #order(list) {
    list.forEach((server, index) => {
      const name = nameOf(server);
      if (!this.#known.has(name)) this.#add(name);
      const { node } = this.#known.get(name);
      if (this.#rows.children[index] !== node) this.#rows.insertBefore(node, this.#rows.children[index] ?? null);
    });
  }

  #fill(row, server) {
    const state = worstState(server);
    const point = pointOf(server, 0);
    const words = this.#find.value.toLowerCase().split(/\s+/);
    const text = `${nameOf(server)} ${server.model_name ?? ""} ${state}`.toLowerCase();
    setBadge(row.badge, state);
    COLUMNS.forEach(([, name, show], index) => setText(row.values[index], show(point[name])));
    row.node.hidden = this.#isLong && !words.every((word) => text.includes(word));
    row.node.classList.toggle("opened", this.#isLong && this.shows(server));
  }
}

function nameOf(server) {
  return String(server.name);
}

function newRow(name) {
  const badge = element("span");
  const values = COLUMNS.map(() => element("span", "value"));
  const node = element("a", "row", element("span", "", name), element("span", "", badge), ...values);
  node.href = `#server-${encodeURIComponent(name)}`;
  node.dataset.name = name;
  return { node, badge, values };
}

function worstFirst(list) {
  const rank = (server) => STATES.indexOf(worstState(server));
  return [...list].sort((one, other) => rank(one) - rank(other));
}
