"use strict";
// What every section uses: elements, numbers, colours, the theme.
const DATA = JSON.parse(document.getElementById("data").textContent);
const STREAMS = [...new Set(DATA.groups.map((group) => group.stream))];
const METRIC = Object.fromEntries(DATA.metrics.map((metric) => [metric.name, metric]));
const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) {
      node.setAttribute(name, value === true ? "" : value);
    }
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function percent(fraction, digits = 2) {
  return fraction === null ? "–" : (100 * fraction).toFixed(digits);
}

function withError(estimate, digits = 2) {
  const [mean, error] = estimate;
  return percent(mean, digits) + (error === null ? "" : ` ± ${percent(error, digits)}`);
}

function signed(estimate) {
  const text = withError(estimate);
  return estimate[0] !== null && estimate[0] >= 0 ? `+${text}` : text;
}

function plain(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 1e5 || size < 1e-3 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}

function duration(seconds) {
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

function color(index) {
  return `var(--c${index % 8})`;
}

// A base method has a colour, its variants a dash: dashed plain, dotted AFEC, solid ANCL.
const DASHES = { CL: "6 4", AFEC: "1.5 3.5", ANCL: "" };

function styles(groups) {
  const pairs = groups.map((group) => `${group.base} ${group.variant}`);
  const unique = new Set(pairs).size === pairs.length;
  const bases = [...new Set(groups.map((group) => group.base))];
  return groups.map((group, index) => ({
    color: color(unique ? bases.indexOf(group.base) : index),
    dash: DASHES[group.variant],
  }));
}

function select(label, options, change) {
  const box = el("select", { onchange: () => change(box.selectedIndex) });
  box.append(...options.map((option) => el("option", {}, option)));
  return el("label", {}, label, box);
}

function section(id, title, explanation, ...children) {
  const node = el("section", { id, "aria-labelledby": `${id}-title` });
  node.append(el("h2", { id: `${id}-title` }, title));
  if (explanation) node.append(el("p", { class: "soft" }, explanation));
  node.append(...children.flat());
  document.getElementById("content").append(node);
  document.getElementById("contents").append(el("a", { href: `#${id}` }, title));
  return node;
}

(function theme() {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  const apply = () => {
    root.dataset.theme = chosen || (system.matches ? "dark" : "light");
  };
  system.addEventListener("change", apply);
  document.getElementById("theme").addEventListener("click", () => {
    chosen = root.dataset.theme === "dark" ? "light" : "dark";
    apply();
  });
  apply();
})();
