// SPDX-License-Identifier: Apache-2.0
// Asks for the snapshot again and again, and shows it; says so when there is no answer.

import { setText } from "./dom.js";
import { roughly } from "./format.js";
import { Overview } from "./overview.js";
import { ServerCard } from "./server.js";
import { listOf, worstState } from "./snapshot.js";
import { STATES } from "./states.js";

const EVERY_MILLISECONDS = 2000;
const PATIENCE_MILLISECONDS = 5000;

const [version, summary, banner, servers, empty] = [
  "version", "summary", "banner", "servers", "empty",
].map((id) => document.getElementById(id));
const overview = new Overview(document.getElementById("overview"), () => show(shown));
const cards = new Map();
let shown = {};
let answeredAt = null;

async function fetchSnapshot() {
  const signal = AbortSignal.timeout(PATIENCE_MILLISECONDS);
  const answer = await fetch(`api/v1/snapshot${overview.query()}`, { cache: "no-store", signal });
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  return answer.json();
}

function show(snapshot) {
  shown = snapshot;
  const list = listOf(snapshot.servers);
  setText(version, String(snapshot.version ?? ""));
  setText(summary, summaryOf(list));
  document.title = titleOf(list);
  empty.hidden = list.length > 0;
  overview.update(list);
  showCards(list.filter((server) => overview.shows(server)), snapshot.at ?? Date.now() / 1000);
}

function showCards(list, at) {
  const names = list.map((server) => String(server.name));
  for (const name of names.filter((each) => !cards.has(each))) cards.set(name, new ServerCard(`server-${name}`));
  for (const [name, card] of cards) {
    if (!names.includes(name)) {
      card.node.remove();
      cards.delete(name);
    }
  }
  list.forEach((server, index) => {
    const card = cards.get(names[index]);
    if (servers.children[index] !== card.node) servers.insertBefore(card.node, servers.children[index] ?? null);
    card.update(server, at);
  });
}

function countsOf(list) {
  const states = list.map(worstState);
  const counts = STATES.map((state) => [state, states.filter((each) => each === state).length]);
  return counts.filter(([, times]) => times > 0);
}

function summaryOf(list) {
  if (list.length < 2) return "";
  return `${list.length} servers: ${countsOf(list).map(([state, times]) => `${times} ${state}`).join(", ")}`;
}

function titleOf(list) {
  const [worst] = countsOf(list);
  if (!worst) return "vllm-watch";
  return list.length === 1 ? `${worst[0]} – vllm-watch` : `${worst[1]} ${worst[0]} – vllm-watch`;
}

function showAnswer(isThere) {
  document.body.classList.toggle("old", !isThere);
  banner.hidden = isThere;
  if (isThere) return;
  document.title = "no answer – vllm-watch";
  const since = answeredAt === null ? "" : ` These values are ${roughly((Date.now() - answeredAt) / 1000)} old.`;
  setText(banner, `vllm-watch does not answer.${since}`);
}

async function look() {
  try {
    show(await fetchSnapshot());
    answeredAt = Date.now();
    showAnswer(true);
  } catch (error) {
    console.warn("No snapshot:", error);
    showAnswer(false);
  }
  setTimeout(look, EVERY_MILLISECONDS);
}

look();
