// SPDX-License-Identifier: Apache-2.0
// Asks for the snapshot again and again, and shows it; says so when there is no answer.

import { alertsOf, AllAlerts } from "./alerts.js";
import { arrange, setText } from "./dom.js";
import { numberOf, roughly } from "./format.js";
import { Overview } from "./overview.js";
import { ServerCard } from "./server.js";
import { listOf, WORDS, wordOf } from "./snapshot.js";
import { Troubles } from "./trouble.js";

const EVERY_MILLISECONDS = 2000;
const PATIENCE_MILLISECONDS = 5000;
const BROKEN = new Set(["down", "stalled"]);

const byId = (id) => document.getElementById(id);
const [version, summary, replay, banner] = ["version", "summary", "replay", "banner"].map(byId);
const [servers, empty] = ["servers", "empty"].map(byId);
const overview = new Overview(byId("overview"), () => show(shown));
const troubles = new Troubles(byId("troubles"), byId("announced"));
const allAlerts = new AllAlerts(byId("alerts"));
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
  const at = snapshot.at ?? Date.now() / 1000;
  setText(version, String(snapshot.version ?? ""));
  setText(summary, summaryOf(list));
  setText(replay, replayOf(snapshot.replay));
  replay.hidden = !snapshot.replay;
  document.title = titleOf(list);
  empty.hidden = list.length > 0;
  troubles.update(list, at);
  allAlerts.update(snapshot, at);
  overview.update(list, (name) => alertsOf(snapshot, name));
  showCards(brokenFirst(list.filter((server) => overview.shows(server))), at);
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
  arrange(servers, names.map((name) => cards.get(name).node));
  for (const server of list) cards.get(String(server.name)).update(server, at, alertsOf(shown, String(server.name)));
}

// Servers that serve nobody come first. The others keep their places: their states change too often for more.
function brokenFirst(list) {
  const isBroken = (server) => BROKEN.has(wordOf(server));
  return [...list.filter(isBroken), ...list.filter((server) => !isBroken(server))];
}

function countsOf(list) {
  const states = list.map(wordOf);
  const counts = WORDS.map((state) => [state, states.filter((each) => each === state).length]);
  return counts.filter(([, times]) => times > 0);
}

function summaryOf(list) {
  if (list.length < 2) return "";
  return `${list.length} servers: ${countsOf(list).map(([state, times]) => `${times} ${state}`).join(", ")}`;
}

// What happens in a replay happens not now, and no server of this machine is meant.
function replayOf(known) {
  const speed = numberOf(known?.speed) ?? 1;
  return `A replay of a recorded server${speed === 1 ? "" : `, ${speed} times as fast`}. Its times are not those of now.`;
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

// A name of the banner opens its server, which is only a row where there are many.
function openNamed(event) {
  const link = event.target.closest("a[data-server]");
  if (link) overview.open(link.dataset.server);
}

function pressed(event) {
  const isTyping = event.target.closest("input");
  if (event.key === "/" && !isTyping && overview.find()) event.preventDefault();
  if (event.key === "Escape" && !isTyping) overview.close(event.target.closest(".server")?.id);
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

byId("troubles").addEventListener("click", openNamed);
document.addEventListener("keydown", pressed);
look();
