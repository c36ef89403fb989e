// SPDX-License-Identifier: Apache-2.0
// What a server was started with: its flags, and what the last start with other flags has changed.

import { element, refill, setText } from "./dom.js";
import { age, numberOf } from "./format.js";
import { listOf } from "./snapshot.js";

const NOT_SET = "(not set)";

export class Configuration {
  #summary = element("summary");
  #flags = element("dl", "facts");

  constructor() {
    this.change = element("p", "change");
    this.node = element("details", "more flags", this.#summary, this.#flags);
  }

  update(server, at) {
    const { flags, config, change } = server.configuration ?? {};
    const rows = Object.entries(flags ?? {});
    this.node.hidden = rows.length === 0;
    setText(this.#summary, typeof config === "string" ? `Flags, config ${config}` : "Flags");
    refill(this.#flags, rows, newFlag);
    setText(this.change, changeOf(change, at));
    this.change.hidden = !change;
  }
}

function changeOf(change, at) {
  const each = listOf(change?.changes).map(({ flag, from, to }) => `${flag} ${from ?? NOT_SET} → ${to ?? NOT_SET}`);
  const when = numberOf(change?.at);
  return `Flags changed${when === null ? "" : ` ${age(at - when)}`}: ${each.join(", ")}`;
}

function newFlag([flag, known]) {
  const node = element("div", "flag", element("dt", "", flag), element("dd", "", String(known?.value ?? "")));
  node.title = `From ${known?.source === "metrics" ? "/metrics" : `the ${known?.source}`}`;
  return node;
}
