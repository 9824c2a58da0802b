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
  const spots = [...named.map(([, place]) => place), ...path];
  const box = {
    x0: Math.min(xs[0], ...spots.map((p) => p[0])), x1: Math.max(xs.at(-1), ...spots.map((p) => p[0])),
    y0: Math.min(ys[0], ...spots.map((p) => p[1])), y1: Math.max(ys.at(-1), ...spots.map((p) => p[1])),
  };
  const width = 460;
  const scale = Math.min((width - 20) / (box.x1 - box.x0), 440 / (box.y1 - box.y0));
  const height = (box.y1 - box.y0) * scale + 60;
  const x = (v) => 10 + (v - box.x0) * scale;
  const y = (v) => height - 50 - (v - box.y0) * scale;
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
  marks(root, { found, named, path, at, x, y });
  scaleBar(root, low, high, height);
  return el("div", { class: "chart" }, root);
}

function marks(root, { found, named, path, at, x, y }) {
  root.append(draw("polyline", {
    points: path.map((p) => `${x(p[0])},${y(p[1])}`).join(" "), fill: "none", stroke: "#fff",
    "stroke-width": 2, "stroke-dasharray": "5 4",
  }));
  for (const p of path) root.append(draw("circle", { cx: x(p[0]), cy: y(p[1]), r: 3, fill: "#fff" }));
  for (const [name, place] of named) {
    const [cx, cy] = [x(place[0]), y(place[1])];
    root.append(name === "cl"
      ? draw("path", { d: `M${cx - 6},${cy - 6}l12,12m0,-12l-12,12`, stroke: "#ff5a36", "stroke-width": 3 })
      : draw("circle", { cx, cy, r: 6, fill: "#ff5a36", stroke: "#fff", "stroke-width": 2 }));
    const left = cx > 380;
    root.append(draw("text", {
      class: "strong", x: cx + (left ? -10 : 10), y: cy + (name === "cl" ? 20 : -8), "text-anchor": left ? "end" : "start",
    }, name === "cl" ? "CL" : REFERENCES[name]));
  }
  const place = found.points[at].place;
  if (place) {
    root.append(draw("circle", { class: "here", cx: x(place[0]), cy: y(place[1]), r: 9, fill: "none", stroke: "#fff", "stroke-width": 5 }),
      draw("circle", { cx: x(place[0]), cy: y(place[1]), r: 9, fill: "none", stroke: "#111", "stroke-width": 2 }));
  }
}

function scaleBar(root, low, high, height) {
  for (let i = 0; i < 60; i += 1) {
    root.append(draw("rect", { x: 110 + i * 4, y: height - 22, width: 4.5, height: 10, fill: shade(i / 59) }));
  }
  root.append(draw("text", { x: 104, y: height - 12, "text-anchor": "end" }, `${percent(low, 1)} %`),
    draw("text", { x: 356, y: height - 12 }, `${percent(high, 1)} %`));
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
  return el("div", { class: "scroll" }, el("table", { id: "explorer-reading" },
    el("thead", {}, el("tr", {}, el("th", { scope: "col" }, ""),
      el("th", { scope: "col", class: "number" }, `λ_a = ${plain(point.lamb_a)}`),
      el("th", { scope: "col", class: "number" }, "CL"))),
    el("tbody", {}, lines)));
}

function overLambA(found, at, title, values, format) {
  const keys = Object.keys(values(found.points[0]));
  const series = keys.map((key, index) => ({
    name: REFERENCES[key] || (key === "mean" ? "mean" : `task ${Number(key.slice(5)) + 1}`),
    color: color(index), dash: "",
    points: found.points.map((point, i) => ({ i, y: values(point)[key], text: format(values(point)[key]) })),
  }));
  return el("div", {}, el("h3", {}, title),
    el("div", { class: "key" }, series.map((each) => el("span", {}, swatch(each), ` ${each.name}`))),
    lineChart({ label: `${title} over λ_a`, xlabel: "λ_a", ylabel: "", mark: at, height: 220,
      xs: found.points.map((point) => plain(point.lamb_a)), series }));
}

function explorer() {
  if (!DATA.analyses.length) return;
  const host = el("div");
  const slider = el("input", { type: "range", min: 0, step: 1, oninput: () => show() });
  const value = el("output", { id: "explorer-value" });
  let found = null;

  function choose(index) {
    found = DATA.analyses[index];
    slider.max = found.points.length - 1;
    slider.value = 0;
    show();
  }

  function show() {
    const at = Number(slider.value);
    value.textContent = plain(found.points[at].lamb_a);
    slider.setAttribute("aria-valuetext", `λ_a = ${value.textContent}`);
    const scaled = (point) => Object.fromEntries(Object.entries(point.accuracy).map(([k, v]) => [k, 100 * v]));
    host.replaceChildren(
      el("div", { class: "columns" },
        found.landscape ? landscapeChart(found, at) : null, explorerReading(found, at)),
      el("div", { class: "columns" },
        ...[["Weight distance", (p) => p.distances, plain], ["CKA", (p) => p.cka, plain],
          ["Accuracy, %", scaled, (v) => v.toFixed(2)]]
          .filter(([, values]) => Object.keys(values(found.points[0])).length)
          .map(([title, values, format]) => overLambA(found, at, title, values, format))),
    );
  }

  const names = DATA.analyses.map((each) => `${each.method}, ${each.benchmark}, λ = ${plain(each.lamb)}, seed ${each.seed}`);
  choose(0);
  section("explorer", "Stability and plasticity: the λ_a explorer",
    "A small λ_a leaves the network near the old one (stability), a large one draws it to the " +
    "auxiliary one (plasticity). The plane goes through old, auxiliary and multitask network, in " +
    "Euclidean units; the dashed path joins the ANCL networks, projected onto it.",
    el("div", { class: "controls" }, select("Analysis", names, choose),
      el("label", { style: "flex: 1 1 260px" }, el("span", {}, "λ_a = ", value), slider)),
    host);
}
