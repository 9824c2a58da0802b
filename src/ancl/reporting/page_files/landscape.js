// The trade-off explorer: λ_a on a slider, its network on the landscape, its numbers beside.
const REFERENCES = { old: "old", auxiliary: "auxiliary", multi: "multitask" };
const SMOOTH = 6; // drawn squares for one measured

function between(values, place) {
  const low = Math.min(Math.floor(place), values.length - 2);
  return [low, place - low];
}

function surface(landscape, i, j) {
  const rows = landscape.accuracy;
  const [a, s] = between(landscape.ys, i);
  const [b, t] = between(landscape.xs, j);
  const mix = (p, q, w) => p * (1 - w) + q * w;
  return mix(mix(rows[a][b], rows[a][b + 1], t), mix(rows[a + 1][b], rows[a + 1][b + 1], t), s);
}

function shade(share) {
  // viridis at five stops
  const stops = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
  const place = Math.min(Math.max(share, 0), 1) * 4;
  const low = Math.min(Math.floor(place), 3);
  return `rgb(${stops[low].map((v, k) => Math.round(v + (stops[low + 1][k] - v) * (place - low))).join(" ")})`;
}

function landscapeChart(found, at) {
  const { xs, ys, accuracy } = found.landscape;
  const [low, high] = [Math.min(...accuracy.flat()), Math.max(...accuracy.flat())];
  const named = Object.entries(found.anchors).filter(([, place]) => place);
  const path = found.points.filter((point) => point.place).map((point) => point.place);
  // A network far off the measured square would make it a dot: the picture ends at half its side around it.
  const near = ([px, py]) => [[px, xs], [py, ys]].every(([v, [first, ...rest]]) => {
    const room = (rest.at(-1) - first) / 2;
    return v >= first - room && v <= rest.at(-1) + room;
  });
  const spots = [...named.map(([, place]) => place), ...path].filter(near);
  const box = {
    x0: Math.min(xs[0], ...spots.map((p) => p[0])), x1: Math.max(xs.at(-1), ...spots.map((p) => p[0])),
    y0: Math.min(ys[0], ...spots.map((p) => p[1])), y1: Math.max(ys.at(-1), ...spots.map((p) => p[1])),
  };
  const width = 480;
  const scale = Math.min((width - 60) / (box.x1 - box.x0), 420 / (box.y1 - box.y0));
  const height = (box.y1 - box.y0) * scale + 118;
  const x = (v) => 48 + (v - box.x0) * scale;
  const y = (v) => height - 94 - (v - box.y0) * scale;
  const root = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label":
    `Accuracy on the plane of old, auxiliary and multitask network, from ${percent(low, 1)} to ${percent(high, 1)} %` });
  const side = (values) => (values.length - 1) * SMOOTH;
  const [dx, dy] = [(xs.at(-1) - xs[0]) / side(xs), (ys.at(-1) - ys[0]) / side(ys)];
  for (let i = 0; i < side(ys); i += 1) {
    for (let j = 0; j < side(xs); j += 1) {
      const value = surface(found.landscape, (i + 0.5) / SMOOTH, (j + 0.5) / SMOOTH);
      root.append(draw("rect", {
        x: x(xs[0] + j * dx), y: y(ys[0] + (i + 1) * dy), width: dx * scale + 0.6, height: dy * scale + 0.6,
        fill: shade((value - low) / (high - low || 1)),
      }, draw("title", {}, `${percent(value, 1)} %`)));
    }
  }
  landscapeAxes(root, { box, x, y });
  marks(root, { found, named: named.filter(([, place]) => near(place)), path: path.filter(near), at, x, y, near });
  scaleBar(root, low, high, height);
  const away = found.points.filter((point) => point.place && !near(point.place)).map((point) => plain(point.lamb_a));
  return el("figure", {}, el("div", { class: "chart" }, root),
    away.length ? el("p", { class: "soft" }, `Outside the picture: λ_a = ${away.join(", ")}.`) : null, saveBar(
    () => `landscape ${found.name} seed ${found.seed}`,
    () => [["along old to auxiliary", "across it, to multitask", "accuracy, %"],
      ...accuracy.flatMap((row, i) => row.map((value, j) => [xs[j], ys[i], 100 * value]))], () => root));
}

function landscapeAxes(root, { box, x, y }) {
  const number = (value) => plain(Number(value.toPrecision(6))).replace("-", "−");
  for (const value of ticks(box.x0, box.x1)) {
    root.append(draw("line", { class: "grid", x1: x(value), x2: x(value), y1: y(box.y0), y2: y(box.y0) + 5 }),
      draw("text", { x: x(value), y: y(box.y0) + 18, "text-anchor": "middle" }, number(value)));
  }
  for (const value of ticks(box.y0, box.y1)) {
    root.append(draw("line", { class: "grid", x1: x(box.x0) - 5, x2: x(box.x0), y1: y(value), y2: y(value) }),
      draw("text", { x: x(box.x0) - 8, y: y(value) + 4, "text-anchor": "end" }, number(value)));
  }
  root.append(draw("text", { x: (x(box.x0) + x(box.x1)) / 2, y: y(box.y0) + 38, "text-anchor": "middle" }, "weight distance, old → auxiliary"),
    draw("text", { x: 4, y: 14 }, "weight distance across it, → multitask"));
}

function marks(root, { found, named, path, at, x, y, near }) {
  // White on dark: the path is seen on the landscape and beside it.
  const points = path.map((p) => `${x(p[0])},${y(p[1])}`).join(" ");
  root.append(draw("polyline", { points, fill: "none", stroke: "#222", "stroke-width": 4 }),
    draw("polyline", { points, fill: "none", stroke: "#fff", "stroke-width": 2, "stroke-dasharray": "5 4" }));
  for (const p of path) root.append(draw("circle", { cx: x(p[0]), cy: y(p[1]), r: 3.5, fill: "#fff", stroke: "#222", "stroke-width": 1 }));
  for (const [name, place] of named) {
    const [cx, cy] = [x(place[0]), y(place[1])];
    root.append(name === "cl"
      ? draw("path", { d: `M${cx - 6},${cy - 6}l12,12m0,-12l-12,12`, stroke: "#ff5a36", "stroke-width": 3 })
      : draw("circle", { cx, cy, r: 6, fill: "#ff5a36", stroke: "#fff", "stroke-width": 2 }));
    const left = cx > 380;
    root.append(draw("text", {
      class: "strong", x: cx + (left ? -10 : 10), y: cy + (name === "cl" ? 20 : -8), "text-anchor": left ? "end" : "start",
    }, name === "cl" ? "CL" : REFERENCES[name] ?? name));
  }
  const place = found.points[at].place;
  if (place && near(place)) {
    root.append(draw("circle", { class: "here", cx: x(place[0]), cy: y(place[1]), r: 9, fill: "none", stroke: "#fff", "stroke-width": 5 }),
      draw("circle", { cx: x(place[0]), cy: y(place[1]), r: 9, fill: "none", stroke: "#111", "stroke-width": 2 }));
  }
}

function scaleBar(root, low, high, height) {
  for (let i = 0; i < 60; i += 1) {
    root.append(draw("rect", { x: 150 + i * 3, y: height - 26, width: 3.5, height: 10, fill: shade(i / 59) }));
  }
  root.append(draw("text", { x: 144, y: height - 16, "text-anchor": "end" }, `accuracy ${percent(low, 1)} %`),
    draw("text", { x: 336, y: height - 16 }, `${percent(high, 1)} %`));
}

function explorerReading(found, at) {
  const point = found.points[at];
  const row = (name, ours, cl) => el("tr", {}, el("th", { scope: "row" }, name),
    el("td", { class: "number" }, ours), el("td", { class: "number" }, cl));
  const lines = [];
  for (const [key, label] of Object.entries(REFERENCES)) {
    if (key in point.distances) lines.push(row(`distance to ${label}`, plain(point.distances[key]), plain(found.cl.distances[key])));
  }
  for (const [key, label] of Object.entries(REFERENCES)) {
    if (key in point.cka) lines.push(row(`CKA to ${label}`, point.cka[key].toFixed(4), plain(found.cl.cka[key])));
  }
  for (const name of Object.keys(point.accuracy)) {
    const label = name === "mean" ? "accuracy, mean" : `accuracy, task ${Number(name.slice(5)) + 1}`;
    lines.push(row(label, `${percent(point.accuracy[name])} %`, `${percent(found.cl.accuracy[name] ?? null)} %`));
  }
  if (point.place) lines.push(row("distance from the plane", plain(point.place[2]), plain(found.cl.place && found.cl.place[2])));
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Numbers at this λ_a" }, el("table", { id: "explorer-reading" },
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "measure"),
      el("th", { scope: "col", class: "number" }, `λ_a = ${plain(point.lamb_a)}`),
      el("th", { scope: "col", class: "number" }, "CL"))),
    el("tbody", {}, lines)));
}

function overLambA(found, at, title, unit, values, format) {
  const keys = Object.keys(values(found.points[0]));
  const series = keys.map((key, index) => ({
    name: REFERENCES[key] || (key === "mean" ? "mean" : `task ${Number(key.slice(5)) + 1}`),
    color: color(index), dash: "",
    points: found.points.map((point, i) => ({ i, y: values(point)[key] ?? null, text: format(values(point)[key]) })),
  }));
  return el("div", {}, el("h3", {}, title),
    el("div", { class: "key" }, series.map((each) => el("span", {}, swatch(each), ` ${each.name}`))),
    lineChart({ label: `${title} over λ_a`, name: `${title} ${found.name} seed ${found.seed}`, xlabel: "λ_a", ylabel: unit, mark: at, height: 220,
      xs: found.points.map((point) => plain(point.lamb_a)), series }));
}

const CORRELATED = {
  distance_old_with_lamb_a: ["λ_a", "distance to the old network"],
  distance_auxiliary_with_lamb_a: ["λ_a", "distance to the auxiliary network"],
  distance_multi_with_lamb_a: ["λ_a", "distance to the multitask network"],
  cka_old_with_lamb_a: ["λ_a", "CKA to the old network"],
  cka_auxiliary_with_lamb_a: ["λ_a", "CKA to the auxiliary network"],
  cka_multi_with_lamb_a: ["λ_a", "CKA to the multitask network"],
  cka_multi_with_mean_accuracy: ["CKA to the multitask network", "mean accuracy"],
};

// What was measured, not what is expected: the ranks of each two numbers over all λ_a.
function correlations(found) {
  const known = Object.entries(CORRELATED).filter(([name]) => found.correlations[name]);
  if (!known.length) return null;
  const number = ([mean, error]) => (mean === null ? "–" : `${mean < 0 ? "−" : "+"}${Math.abs(mean).toFixed(2)}${error === null ? "" : ` ± ${error.toFixed(2)}`}`);
  return el("div", { id: "correlations" }, el("h3", {}, "Rank correlations over λ_a"),
    el("p", { class: "soft" }, `Spearman’s ρ over ${found.points.length} values of λ_a: +1 if both rise together, −1 if one falls as the other rises; ` +
      "mean ± standard error over the seeds of the analysis."),
    simpleTable("Measured rank correlations", ["of", "with", "ρ", "seeds"],
      known.map(([name, [of, other]]) => [of, other, number(found.correlations[name]), String(found.correlations[name][2])])));
}

function explorer() {
  if (!DATA.analyses.length) return;
  const host = el("div");
  const slider = el("input", { type: "range", min: 0, step: 1, oninput: () => {
    keep("lamb_a", slider.value, 0);
    show();
  } });
  const value = el("output", { id: "explorer-value" });
  let found = null;

  function choose(index, start = 0) {
    found = DATA.analyses[index];
    slider.max = found.points.length - 1;
    slider.value = start;
    show();
  }

  function show() {
    const at = Number(slider.value);
    value.textContent = plain(found.points[at].lamb_a);
    slider.setAttribute("aria-valuetext", `λ_a = ${value.textContent}`);
    const scaled = (point) => Object.fromEntries(Object.entries(point.accuracy).map(([k, v]) => [k, 100 * v]));
    host.replaceChildren(...[
      el("div", { class: "columns" },
        found.landscape ? landscapeChart(found, at) : null, explorerReading(found, at)),
      el("div", { class: "columns" },
        ...[["Weight distance", "‖θ − θ_ref‖", (p) => p.distances, plain], ["CKA", "CKA, 0 to 1", (p) => p.cka, plain],
          ["Accuracy", "test accuracy, %", scaled, (v) => (v === undefined ? "–" : v.toFixed(2))]]
          .filter(([, , values]) => Object.keys(values(found.points[0])).length)
          .map((each) => overLambA(found, at, ...each))),
      correlations(found),
    ].filter(Boolean));
  }

  const names = DATA.analyses.map((each) => `${each.method}, ${each.benchmark}, λ = ${plain(each.lamb)}, seed ${each.seed}`);
  const picked = select("Analysis", names, (index) => { keep("lamb_a", 0, 0); choose(index); }, "analysis");
  section("explorer", "The λ_a explorer",
    "The landscape is the plane through old, auxiliary and multitask network, in Euclidean units of the weights; the dashed path joins " +
    "the ANCL networks, projected onto it. “CL” is the plain method" +
    (DATA.analyses.some((each) => each.anchors.connector) ? ", “connector” the weighted average of old and auxiliary network." : "."),
    el("div", { class: "controls" }, picked,
      el("label", { style: "flex: 1 1 260px" }, el("span", {}, "λ_a = ", value), slider)),
    host);
  choose(picked.index, Number(kept("lamb_a", 0)) || 0);
}
