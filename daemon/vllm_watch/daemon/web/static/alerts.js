// SPDX-License-Identifier: Apache-2.0
// The alerts of a Prometheus, where one is configured: at their server, and how many there are in all.

import { element, newLink, refill, setText } from "./dom.js";
import { count, numberOf, span } from "./format.js";
import { SEVERITIES } from "./severities.js";
import { listOf } from "./snapshot.js";

// Returns the severity that an alert is shown with: whoever changes the rules may give others.
function severityOf(alert) {
  return SEVERITIES.includes(alert.severity) ? alert.severity : SEVERITIES.at(-1);
}

// Returns the alerts about one server, or about vllm-watch itself (null); null if they are not known.
export function alertsOf(snapshot, server) {
  return Array.isArray(snapshot.alerts) ? snapshot.alerts.filter((alert) => (alert.server ?? null) === server) : null;
}

export function firing(alerts, severity = null) {
  return listOf(alerts).filter((alert) => alert.state === "firing" && (!severity || severityOf(alert) === severity)).length;
}

export class AlertList {
  #rows = element("ul", "list");

  constructor(title, heading = "h3") {
    this.node = element("section", "alerts", element(heading, "", title), this.#rows);
  }

  update(alerts, at) {
    this.node.hidden = listOf(alerts).length === 0;
    refill(this.#rows, listOf(alerts).map((alert) => rowOf(alert, at)), newRow);
  }
}

// The line about all alerts, and those that are about no server.
export class AllAlerts {
  #node;
  #says = element("p");
  #others = new AlertList("Alerts about vllm-watch", "h2");

  constructor(node) {
    this.#node = node;
    this.#node.append(this.#says, this.#others.node);
  }

  update(snapshot, at) {
    this.#node.hidden = !snapshot.prometheus;
    this.#node.classList.toggle("unknown", !Array.isArray(snapshot.alerts));
    setText(this.#says, saysOf(snapshot));
    this.#others.update(alertsOf(snapshot, null), at);
  }
}

function saysOf({ alerts, prometheus }) {
  if (!Array.isArray(alerts)) return `Alerts are not known. ${prometheus?.explanation ?? ""}`;
  const all = SEVERITIES.map((severity) => [severity, firing(alerts, severity)]).filter(([, times]) => times > 0);
  const pending = alerts.length - firing(alerts);
  const parts = [
    all.length ? `Alerts that fire: ${all.map(([severity, times]) => `${count(times)} ${severity}`).join(", ")}` : "No alert fires",
    pending > 0 && `${count(pending)} pending`,
    prometheus?.alerts_left_out > 0 && `${count(prometheus.alerts_left_out)} more are not shown`,
  ];
  return `${parts.filter(Boolean).join("; ")}.`;
}

function rowOf(alert, at) {
  const since = numberOf(alert.active_since);
  return {
    severity: severityOf(alert),
    state: String(alert.state ?? ""),
    name: String(alert.alertname ?? ""),
    engine: alert.engine === undefined ? "" : `engine ${alert.engine}`,
    says: String(alert.summary ?? ""),
    lasts: since === null ? "" : `for ${span(Math.max(at - since, 0))}`,
    runbook: alert.runbook_url,
    dashboard: alert.dashboard_url,
    instance: alert.instance ?? "",
  };
}

function newRow({ severity, state, name, engine, says, lasts, runbook, dashboard, instance }) {
  const sign = element("span", `severity ${severity}`, severity);
  const title = runbook ? newLink({ title: name, url: runbook }) : element("span", "", name);
  const more = dashboard ? [" ", newLink({ title: "dashboard", url: dashboard })] : [];
  const text = element("span", "", title, engine ? ` ${engine}` : "", `: ${says}`, ...more);
  const node = element("li", `alert ${state}`, sign, text, element("span", "muted when", `${state} ${lasts}`));
  if (instance) node.title = `By vllm-watch ${instance}`;
  return node;
}
