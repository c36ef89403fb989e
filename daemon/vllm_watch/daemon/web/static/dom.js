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

// Replaces the children, but only when what they show has changed: a selection in them lasts as long as it can. A link
// in them keeps the focus.
export function refill(node, shown, build) {
  const key = JSON.stringify(shown);
  if (node.shownKey === key) return;
  node.shownKey = key;
  const focused = node.contains(document.activeElement) ? document.activeElement.href : null;
  node.replaceChildren(...shown.map(build));
  const links = focused ? [...node.querySelectorAll("a")] : [];
  links.find((link) => link.href === focused)?.focus({ preventScroll: true });
}

// Puts the children into this order; what has the focus keeps it.
export function arrange(node, children) {
  const focused = document.activeElement;
  children.forEach((child, index) => {
    if (node.children[index] !== child) node.insertBefore(child, node.children[index] ?? null);
  });
  if (focused !== document.activeElement && node.contains(focused)) focused.focus({ preventScroll: true });
}

// A link that opens a window of its own, which learns nothing of this one; only of the web.
export function newLink({ title, url }) {
  if (!/^https?:\/\//.test(url)) return element("span", "", title);
  const node = element("a", "", title);
  node.href = url;
  node.target = "_blank";
  node.rel = "noopener noreferrer";
  return node;
}
