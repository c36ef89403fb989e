// SPDX-License-Identifier: Apache-2.0
// The last hour of a server: what the snapshot brings along, and what this page has seen since.

import { numberOf } from "./format.js";
import { listOf, pointOf } from "./snapshot.js";

const KEPT_SECONDS = 3600;

export class History {
  #seen = [];

  // Takes a server's newest snapshot; returns the points of the last hour, oldest first.
  take(server, at) {
    const brought = broughtPoints(server.history);
    const end = brought.length ? brought[brought.length - 1].t : -Infinity;
    if (at > (this.#seen[this.#seen.length - 1]?.t ?? -Infinity)) this.#seen.push(pointOf(server, at));
    this.#seen = this.#seen.filter((point) => point.t > end && point.t > at - KEPT_SECONDS && point.t <= at);
    return [...brought.filter((point) => point.t > at - KEPT_SECONDS), ...this.#seen];
  }
}

function broughtPoints(history) {
  const columns = Object.entries(history ?? {}).filter(([name]) => name !== "t");
  return listOf(history?.t).map((t, index) => {
    const values = columns.map(([name, column]) => [name, numberOf(listOf(column)[index])]);
    return { t, ...Object.fromEntries(values) };
  });
}
