// SPDX-License-Identifier: Apache-2.0
// All servers at a glance, worst first: a few as links to their cards, many as rows that can be searched and opened.

import { firing } from "./alerts.js";
import { arrange, element, setBadge, setText } from "./dom.js";
import { count, number, percent, roughLatency, UNKNOWN } from "./format.js";
import { wrongGpus } from "./gpus.js";
import { SERVERS_WITH_HOUR } from "./limits.js";
import { pointOf, WORDS, wordOf } from "./snapshot.js";

const COLUMNS = [
  ["running", "requests_running", number],
  ["waiting", "requests_waiting", number],
  ["KV cache", "kv_cache_usage_ratio", percent],
  ["tokens/s", "generation_tokens_per_second", number],
  ["TTFT p95", "ttft_p95", roughLatency],
];

export class Overview {
  #node;
  #find = element("input", "find");
  #head = element("div", "row head", element("span", "", "server"), element("span", "", "state"));
  #rows = element("div", "rows");
  #known = new Map();
  #opened = new Set();
  #isLong = false;

  #changed;

  // `changed` is called when other servers are to be shown.
  constructor(node, changed) {
    this.#node = node;
    this.#changed = changed;
    this.#find.type = "search";
    this.#find.placeholder = "Filter by name, model or state";
    this.#find.setAttribute("aria-label", this.#find.placeholder);
    this.#find.addEventListener("input", changed);
    this.#head.append(...COLUMNS.map(([title]) => element("span", "value", title)), element("span", "value firing", "alerts"));
    this.#node.append(this.#find, this.#head, this.#rows);
    this.#rows.addEventListener("click", (event) => this.#toggle(event));
    this.#rows.addEventListener("keydown", (event) => this.#press(event));
  }

  // `alertsOf` returns a server's alerts, or null if they are not known.
  update(list, alertsOf) {
    this.#isLong = list.length > SERVERS_WITH_HOUR;
    this.#node.hidden = list.length < 2;
    this.#node.classList.toggle("long", this.#isLong);
    this.#find.hidden = this.#head.hidden = !this.#isLong;
    this.#forget(list.map(nameOf));
    const alerts = new Map(list.map((server) => [nameOf(server), alertsOf(nameOf(server))]));
    this.#node.classList.toggle("with-alerts", [...alerts.values()].some((each) => each !== null));
    this.#order(worstFirst(list, alerts));
    for (const server of list) this.#fill(this.#known.get(nameOf(server)), server, alerts.get(nameOf(server)));
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

  // Opens a server's card, if it is one of many.
  open(name) {
    if (!this.#isLong) return;
    this.#opened.add(name);
    // The one that was opened first closes, so that the page stays light.
    if (this.#opened.size > SERVERS_WITH_HOUR) this.#opened.delete([...this.#opened][0]);
    this.#changed();
  }

  // Closes the server with this card, or else the one that was opened last, and goes back to its row.
  close(id) {
    const name = [...this.#opened].reverse().find((each) => !id || id === `server-${each}`);
    if (!this.#isLong || name === undefined) return;
    this.#opened.delete(name);
    this.#changed();
    this.#known.get(name)?.node.focus();
  }

  // Goes to the field for the filter; returns whether there is one.
  find() {
    if (this.#isLong) this.#find.focus();
    return this.#isLong;
  }

  #toggle(event) {
    const row = event.target.closest("a");
    if (!row || !this.#isLong) return;
    if (!this.#opened.delete(row.dataset.name)) return this.open(row.dataset.name);
    event.preventDefault();
    this.#changed();
  }

  // The space bar opens a row, as it does a button; the arrows go from row to row.
  #press(event) {
    const row = event.target.closest("a");
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!row || !this.#isLong || (event.key !== " " && !step)) return;
    event.preventDefault();
    if (event.key === " ") return row.click();
    const rows = [...this.#rows.children].filter((each) => !each.hidden);
    rows[rows.indexOf(row) + step]?.focus();
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
    const names = list.map(nameOf);
    for (const name of names.filter((each) => !this.#known.has(each))) this.#add(name);
    arrange(this.#rows, names.map((name) => this.#known.get(name).node));
  }

  #fill(row, server, alerts) {
    const state = wordOf(server);
    const point = pointOf(server, 0);
    const words = this.#find.value.toLowerCase().split(/\s+/);
    const text = `${nameOf(server)} ${server.model_name ?? ""} ${state}`.toLowerCase();
    setBadge(row.badge, state);
    setText(row.gpus, wrongGpus(server));
    COLUMNS.forEach(([, name, show], index) => setText(row.values[index], show(point[name])));
    setText(row.alerts, alertsText(alerts));
    row.alerts.classList.toggle("over", firing(alerts, "critical") > 0);
    row.node.hidden = this.#isLong && !words.every((word) => text.includes(word));
    row.node.classList.toggle("opened", this.#isLong && this.shows(server));
    if (this.#isLong) row.node.setAttribute("aria-expanded", String(this.shows(server)));
    else row.node.removeAttribute("aria-expanded");
  }
}

function nameOf(server) {
  return String(server.name);
}

function newRow(name) {
  const badge = element("span");
  const values = COLUMNS.map(() => element("span", "value"));
  const alerts = element("span", "value firing");
  const gpus = element("b", "wrong-gpus");
  const node = element("a", "row", element("span", "", name, gpus), element("span", "", badge), ...values, alerts);
  node.href = `#server-${encodeURIComponent(name)}`;
  node.dataset.name = name;
  return { node, badge, gpus, values, alerts };
}

function alertsText(alerts) {
  if (alerts === null) return UNKNOWN;
  const critical = firing(alerts, "critical");
  return critical ? `${count(critical)} critical` : count(firing(alerts));
}

// By state, and of servers in the same state those with critical alerts first.
function worstFirst(list, alerts) {
  const rank = (server) => WORDS.indexOf(wordOf(server));
  const pages = (server) => firing(alerts.get(nameOf(server)), "critical");
  return [...list].sort((one, other) => rank(one) - rank(other) || pages(other) - pages(one));
}
