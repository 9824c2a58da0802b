"use strict";
// What every section uses: elements, numbers, colours, the view in the address, the theme.
const DATA = JSON.parse(document.getElementById("data").textContent);
// What a method is compared with: one baseline for all, or each variant's own host.
const OTHER = Object.keys(DATA.baselines).length ? "baseline" : "host";
const STREAMS = [...new Set(DATA.groups.map((group) => group.stream))];
const METRIC = Object.fromEntries(DATA.metrics.map((metric) => [metric.name, metric]));
const SVG = "http://www.w3.org/2000/svg";
DATA.groups.forEach((group, index) => { group.index = index; });

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) {
      node.setAttribute(name, value === true && !name.startsWith("aria") ? "" : value);
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
  return fraction === null ? "–" : (100 * fraction).toFixed(digits).replace(/^-(?=0\.?0*$)/, "").replace("-", "−");
}

function withError(estimate, digits = 2) {
  const [mean, error] = estimate;
  return percent(mean, digits) + (error === null ? "" : ` ± ${percent(error, digits)}`);
}

function plus(fraction, digits = 2) {
  const text = percent(fraction, digits);
  return fraction !== null && fraction >= 0 ? `+${text}` : text;
}

function signed(estimate) {
  return plus(estimate[0]) + (estimate[1] === null ? "" : ` ± ${percent(estimate[1])}`);
}

// Points with their interval, as in “+0.40 [+0.10, +0.70]”.
function withInterval(difference) {
  const [low, high] = difference.interval;
  const mean = plus(difference.estimate[0]);
  return low === null ? mean : `${mean} [${plus(low)}, ${plus(high)}]`;
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

// Dashed plain, dotted AFEC, solid ANCL; a colour for each method, or for its base where they are many.
const DASHES = { CL: "6 4", AFEC: "1.5 3.5", ANCL: "" };
const LOOKS = new Map();

function styleOf(group) {
  if (!LOOKS.has(group)) {
    const like = DATA.groups.filter((other) => other.stream === group.stream);
    const methods = [...new Set(like.map((other) => other.method))];
    const names = methods.length <= 8 ? methods : [...new Set(like.map((other) => other.base))];
    const place = names.indexOf(methods.length <= 8 ? group.method : group.base);
    LOOKS.set(group, { color: color(place), dash: DASHES[group.variant] });
  }
  return LOOKS.get(group);
}

// As a line beside others: further settings of a method take colours that no method has, while there are some.
function lineStyle(group) {
  const like = DATA.groups.filter((other) => other.stream === group.stream);
  const further = like.filter((other, i) => like.findIndex((each) => each.method === other.method) < i);
  const place = further.indexOf(group);
  return like.length > 8 || place < 0 ? styleOf(group) : { ...styleOf(group), color: color(like.length - further.length + place) };
}

// -- the view, kept in the address: “#plane&on=digits%2F5&columns=all” ------------------------
const VIEW = (() => {
  const [at, ...rest] = location.hash.slice(1).split("&");
  return { at, values: new URLSearchParams(rest.join("&")) };
})();

function address() {
  const values = VIEW.values.toString();
  return `#${VIEW.at}${values && `&${values}`}`;
}

function writeAddress() {
  try {
    history.replaceState(null, "", address());
  } catch { /* a page without an address keeps no view */ }
}

function kept(key, otherwise) {
  return VIEW.values.has(key) ? VIEW.values.get(key) : otherwise;
}

function keep(key, value, otherwise) {
  if (String(value) === String(otherwise)) VIEW.values.delete(key);
  else VIEW.values.set(key, value);
  writeAddress();
}

addEventListener("hashchange", () => {
  if (location.hash === address()) return;
  // A link inside the page names a section only: the rest of the view stays.
  if (!location.hash.includes("&")) {
    VIEW.at = location.hash.slice(1);
    writeAddress();
  } else location.reload();
});

// A choice among names; with a key it is kept in the address.
function select(label, options, change, key = null, start = 0) {
  const known = key === null ? -1 : options.indexOf(kept(key, options[start]));
  const box = el("select", { onchange: () => {
    if (key !== null) keep(key, options[box.selectedIndex], options[start]);
    change(box.selectedIndex);
  } });
  box.append(...options.map((option) => el("option", {}, option)));
  box.selectedIndex = known >= 0 ? known : start;
  return Object.assign(el("label", {}, label, box), { index: box.selectedIndex });
}

function checkbox(label, key, otherwise, change) {
  const box = el("input", { type: "checkbox", onchange: () => {
    keep(key, box.checked ? 1 : 0, otherwise ? 1 : 0);
    change(box.checked);
  } });
  box.checked = kept(key, otherwise ? "1" : "0") === "1";
  return Object.assign(el("label", { class: "check" }, box, label), { on: box.checked });
}

// The benchmark that headline, plane, curves and matrices show.
const STREAM = { index: Math.max(STREAMS.indexOf(kept("on", "")), 0), listeners: [] };

function onStream(show) {
  STREAM.listeners.push(show);
  show();
}

function ofStream() {
  return DATA.groups.filter((group) => group.stream === STREAMS[STREAM.index]);
}

// The task of a column: a task in which no new class came has a row and no column.
function taskOf(group, column) {
  const born = group.cells.findIndex((row) => row[column]);
  return (born < 0 ? column : born) + 1;
}

function taskName(group, column) {
  const classes = (DATA.classes[group.stream] || [])[column];
  return `task ${taskOf(group, column)}${classes ? ` (${shortList(classes)})` : ""}`;
}

function shortList(names, most = 6) {
  const more = names.length - most;
  return names.slice(0, most).join(", ") + (more > 0 ? ` and ${more} more` : "");
}

function section(id, title, explanation, ...children) {
  const node = el("section", { id, "aria-labelledby": `${id}-title` });
  node.append(el("h2", { id: `${id}-title` }, title));
  if (explanation) node.append(el("p", { class: "soft" }, explanation));
  node.append(...children.flat().filter(Boolean));
  document.getElementById("content").append(node);
  document.getElementById("contents").append(el("a", { href: `#${id}` }, title));
  return node;
}

(function theme() {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const remembered = () => {
    try { return localStorage.getItem("ancl theme"); } catch { return null; }
  };
  let chosen = kept("theme", null) || remembered();
  const apply = () => {
    root.dataset.theme = ["light", "dark"].includes(chosen) ? chosen : system.matches ? "dark" : "light";
  };
  system.addEventListener("change", apply);
  document.getElementById("theme").addEventListener("click", () => {
    chosen = root.dataset.theme === "dark" ? "light" : "dark";
    // A browser may forget what a file on disk stores; the address does not.
    keep("theme", chosen, null);
    try { localStorage.setItem("ancl theme", chosen); } catch { /* kept in the address alone */ }
    apply();
  });
  apply();
})();
