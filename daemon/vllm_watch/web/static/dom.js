// SPDX-License-Identifier: Apache-2.0
// Building the page: only nodes and text, so that nothing from the snapshot is ever read as HTML.

const SVG = "http://www.w3.org/2000/svg";

export function element(tag, className, ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...children);
  return node;
}

export function shape(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function setBadge(node, state) {
  node.className = `badge ${state}`;
  setText(node, state);
}

// Replaces the children, but only when what they show has changed: a selection in them lasts as long as it can.
export function refill(node, shown, build) {
  const key = JSON.stringify(shown);
  if (node.shownKey === key) return;
  node.shownKey = key;
  node.replaceChildren(...shown.map(build));
}
