// SPDX-License-Identifier: Apache-2.0
// What happened to a server in the last hour: starts, changes of state, failures, other files, other flags.

import { element, refill, setText } from "./dom.js";
import { age, count } from "./format.js";
import { listOf } from "./snapshot.js";

const SHOWN = 8;
const NOTHING = { when: "", says: "none", state: "" };

export class Events {
  #rows = element("ul", "list");
  #more = element("p", "caption");

  constructor() {
    this.node = element("section", "", element("h3", "", "Events of the last hour"), this.#rows, this.#more);
  }

  // Nothing is shown where the events are not known.
  update(server, at) {
    const latest = latestOf(server);
    const isNamed = listOf(server.engines).length > 1;
    const rows = latest.slice(0, SHOWN).map((event) => rowOf(event, at, isNamed));
    this.node.hidden = !Array.isArray(server.events);
    refill(this.#rows, rows.length ? rows : [NOTHING], newRow);
    setText(this.#more, latest.length > SHOWN ? `and ${count(latest.length - SHOWN)} earlier ones` : "");
    this.#more.hidden = latest.length <= SHOWN;
  }
}

// Returns the events of the last hour, the latest first.
function latestOf(server) {
  return listOf(server.events).slice().reverse();
}

function rowOf(event, at, isNamed) {
  const engine = isNamed && event.engine !== undefined ? `engine ${event.engine}: ` : "";
  const times = event.count > 1 ? ` (${count(event.count)} ×)` : "";
  return { when: age(at - event.at), says: `${engine}${event.text ?? ""}${times}`, state: event.state ?? "" };
}

function newRow({ when, says, state }) {
  return element("li", state ? `event to-state ${state}` : "event", element("span", "muted when", when), element("span", "says", says));
}
