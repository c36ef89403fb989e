// SPDX-License-Identifier: Apache-2.0
// Links to a server's logs and GPUs, where they are configured; the last hour takes the place of their times.

const TITLES = { logs: "Logs of the last hour", gpu: "GPUs in the last hour" };

// A path alone is one of Grafana's, whose host is not known here.
export function linkRows(server, at) {
  const links = Object.entries(server.links ?? {}).filter(([, url]) => /^https?:\/\//.test(url));
  return links.map(([kind, url]) => ({ title: TITLES[kind] ?? kind, url: withTimes(url, at) }));
}

// In whole minutes: a link that changed with every snapshot could hardly be clicked.
function withTimes(url, at) {
  const to = Math.ceil(at / 60) * 60;
  const seconds = { from: to - 3600, to };
  return url.replace(/\{(from|to)(_seconds)?\}/g, (_, name, unit) => String(seconds[name] * (unit ? 1 : 1000)));
}
