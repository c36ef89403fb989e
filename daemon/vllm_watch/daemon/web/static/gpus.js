// SPDX-License-Identifier: Apache-2.0
// The GPUs of one server: a row for each, and what is wrong with them. Nothing is shown where none is known.

import { element, refill, setText } from "./dom.js";
import { count, gibibytes, megahertz, numberOf, ofMost, share, UNKNOWN } from "./format.js";
import {
  ACTION_PROBLEMS, ACTION_WORDS, NORMAL_THROTTLING, NOT_READ_WORD, NOT_SHOWN, OK_WORD, REMAP_FAILED, REMAP_FAILED_WORD,
  STATE_PROBLEMS, STATE_WORDS, THROTTLING_WORDS,
} from "./gpu_texts.js";
import { listOf } from "./snapshot.js";

const HEADS = [
  "GPU", "State", "Busy, %", "Memory, GiB", "Others' memory, GiB", "Power, W", "Core, °C",
  "SM clock, MHz", "Throttled, % of time",
];
const OF_UUID = 4; // How much of its UUID names a GPU whose number is not known.
const LEAST_SHARE = 0.0005; // Below this a part of the time is written as 0.

export class Gpus {
  #problems = element("ul", "list problems");
  #rows = element("tbody");
  #reason = element("p", "caption");

  constructor() {
    const heads = HEADS.map((text) => element("th", "", text));
    for (const head of heads) head.scope = "col";
    const table = element("table", "gpus", element("thead", "", element("tr", "", ...heads)), this.#rows);
    this.node = element("section", "of-gpus", element("h3", "", "GPUs"), this.#problems, table, this.#reason);
  }

  update(server) {
    const gpus = listOf(server.gpus);
    const source = listOf(server.sources).find((each) => each.source === "gpu");
    this.node.hidden = gpus.length === 0;
    const problems = gpus.flatMap((gpu) => problemsOf(gpu, source));
    refill(this.#problems, problems, (text) => element("li", "", text));
    this.#problems.hidden = problems.length === 0;
    refill(this.#rows, gpus.map(cellsOf), newRow);
    setText(this.#reason, source && source.up !== true ? source.explanation ?? "" : "");
    this.#reason.hidden = !this.#reason.textContent;
  }
}

// How many GPUs of a server need somebody, in words; empty if none does.
export function wrongGpus(server) {
  const words = listOf(server.gpus).map(conditionOf).filter(({ isWrong }) => isWrong).map(({ text }) => text);
  if (!words.length) return "";
  return `${count(words.length)} ${words.length > 1 ? "GPUs" : "GPU"}: ${[...new Set(words)].join(", ")}`;
}

function nameOf(gpu) {
  if (numberOf(gpu.index) === null || !gpu.pci_bus_id) return `GPU ${gpu.gpu}`;
  return `${isInstance(gpu) ? "MIG instance of " : ""}GPU ${gpu.index} (${gpu.pci_bus_id})`;
}

function isInstance(gpu) {
  return String(gpu.gpu).startsWith("MIG-");
}

function problemsOf(gpu, source) {
  const isMissing = gpu.state === undefined && source?.up === true;
  const hasFailed = Boolean(gpu.values?.gpu_row_remap_failed);
  const texts = [isMissing && NOT_SHOWN, STATE_PROBLEMS[gpu.state], ACTION_PROBLEMS[gpu.recovery_action], hasFailed && REMAP_FAILED];
  return texts.filter(Boolean).map((text) => `${nameOf(gpu)}: ${text}`);
}

// The state, else what to do.
function conditionOf(gpu) {
  if (gpu.state === undefined) return { text: NOT_READ_WORD, isWrong: false, isNotable: true };
  const remap = gpu.values?.gpu_row_remap_failed ? REMAP_FAILED_WORD : undefined;
  const wrong = STATE_WORDS[gpu.state] ?? ACTION_WORDS[gpu.recovery_action] ?? remap;
  return { text: wrong ?? OK_WORD, isWrong: wrong !== undefined, isNotable: false };
}

// For which part of the last seconds clocks were lowered; reasons that deserve a look come first.
function throttlingOf(gpu) {
  if (!gpu.throttled) return { text: UNKNOWN, isNotable: false };
  const found = Object.entries(gpu.throttled).filter(([, part]) => part >= LEAST_SHARE);
  const order = ([reason, part]) => (reason === NORMAL_THROTTLING ? 1 : -part);
  found.sort((one, other) => order(one) - order(other));
  const texts = found.map(([reason, part]) => `${share(part)} ${THROTTLING_WORDS[reason] ?? reason}`);
  return { text: texts.join(", ") || "no", isNotable: found.some(([reason]) => reason !== NORMAL_THROTTLING) };
}

function cellsOf(gpu) {
  const value = (name) => numberOf(gpu.values?.[`gpu_${name}`]);
  const title = numberOf(gpu.index) === null ? String(gpu.gpu).split("-")[1]?.slice(0, OF_UUID) : `${gpu.index}${isInstance(gpu) ? " MIG" : ""}`;
  const plain = [
    share(value("busy_ratio")),
    ofMost(gpu.memory, value("memory_total_bytes"), gibibytes),
    gibibytes(gpu.other_memory),
    ofMost(value("power_watts"), value("power_limit_watts")),
    count(gpu.values_by_label?.gpu_temperature_celsius?.core),
    megahertz(value("sm_clock_hertz")),
  ];
  const about = [gpu.name, gpu.pci_bus_id, gpu.gpu].filter(Boolean).join(", ");
  const cells = [conditionOf(gpu), ...plain.map((text) => ({ text })), throttlingOf(gpu)];
  return { title, about, isShared: gpu.is_shared === true, cells };
}

function newRow({ title, about, isShared, cells }) {
  const head = element("th", "", isShared ? `${title}, shared` : title);
  head.scope = "row";
  head.title = about;
  return element("tr", "", head, ...cells.map(newCell));
}

function newCell({ text, isWrong, isNotable }, index) {
  const cell = element("td", isNotable ? "over" : "", isWrong ? element("span", "badge down", text) : text);
  cell.dataset.head = HEADS[index + 1];
  return cell;
}
