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

  // `events` are those of the last hour, oldest first; nothing is shown where they are not known.
  update(events, at) {
    const latest = listOf(events).slice().reverse();
    this.node.hidden = !Array.isArray(events);
    refill(this.#rows, latest.length ? latest.slice(0, SHOWN).map((event) => rowOf(event, at)) : [NOTHING], newRow);
    setText(this.#more, latest.length > SHOWN ? `and ${count(latest.length - SHOWN)} earlier ones` : "");
    this.#more.hidden = latest.length <= SHOWN;
  }
}

function rowOf(event, at) {
  const engine = event.engine === undefined ? "" : `engine ${event.engine}: `;
  const times = event.count > 1 ? ` (${count(event.count)} ×)` : "";
  return { when: age(at - event.at), says: `${engine}${event.text ?? ""}${times}`, state: event.state ?? "" };
}

function newRow({ when, says, state }) {
  return element("li", `event ${state}`, element("span", "muted when", when), element("span", "says", says));
}
