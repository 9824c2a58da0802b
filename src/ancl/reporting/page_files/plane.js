// The stability-plasticity plane: forgetting against learning accuracy, a point for each seed.
const SHAPES = {
  CL: (x, y, r) => `M${x - r},${y}a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0z`,
  AFEC: (x, y, r) => `M${x - 0.9 * r},${y - 0.9 * r}h${1.8 * r}v${1.8 * r}h${-1.8 * r}z`,
  ANCL: (x, y, r) => `M${x},${y - 1.2 * r}l${1.1 * r},${2 * r}h${-2.2 * r}z`,
};
const SIGNS = { lamb: "λ", lamb_a: "λ_a" };

function planePoint(group) {
  const [x, y] = ["forgetting", "learning_accuracy"].map((name) => group.metrics[name]);
  return { group, x: 100 * x[0], y: 100 * y[0], dx: x[1] === null ? null : 100 * x[1], dy: y[1] === null ? null : 100 * y[1],
    seeds: group.seeds.map((seed, i) => ({ seed, x: 100 * group.by_seed.forgetting[i], y: 100 * group.by_seed.learning_accuracy[i] })) };
}

function planeText(point, seed = null) {
  const { group } = point;
  const metric = (name, unit) => `${METRIC[name].label.toLowerCase().replace("aac", "AAC")} ` +
    (seed === null ? withError(group.metrics[name]) : percent(group.by_seed[name][seed])) + ` ${unit}`;
  const where = seed === null ? `mean of ${group.seeds.length} seed${group.seeds.length > 1 ? "s" : ""}` : `seed ${group.seeds[seed]}`;
  return [`${group.title}, ${where}`, metric("learning_accuracy", "%"), metric("forgetting", "points"), metric("aac", "%")];
}

function planeChart(groups) {
  const host = el("div", { class: "chart" });
  const tip = el("div", { class: "tip", role: "status", "aria-live": "polite" });
  const points = groups.map(planePoint).sort((a, b) => a.x - b.x);
  const spots = []; // every point that can be read: means first, in the order of keys
  let [at, size, frame] = [null, 0, null];

  function render() {
    size = widthOf(host);
    const height = Math.round(Math.min(Math.max(size * 0.62, 320), 560));
    const box = { left: 52, right: size - 14, top: 26, bottom: height - 48 };
    const every = points.flatMap((p) => [p, ...p.seeds, { x: p.x - (p.dx || 0), y: p.y - (p.dy || 0) }, { x: p.x + (p.dx || 0), y: p.y + (p.dy || 0) }]);
    const [x0, x1] = extent(every.map((p) => p.x));
    const [y0, y1] = extent(every.map((p) => p.y));
    const x = (v) => box.left + ((box.right - box.left) * (v - x0)) / (x1 - x0);
    const y = (v) => box.bottom - ((box.bottom - box.top) * (v - y0)) / (y1 - y0);
    frame = { x, y, box, x0, x1, y0, y1 };
    const root = draw("svg", { viewBox: `0 0 ${size} ${height}`, height, role: "img", tabindex: 0, "aria-label":
      "Learning accuracy against forgetting. Left and right arrow keys read the means, up and down the seeds." });
    planeAxes(root, frame);
    equalAccuracy(root, frame, groups[0].tasks);
    sweepLines(root, frame, groups);
    spots.length = 0;
    for (const point of points) planeMarks(root, point, frame, spots);
    names(root);
    root.append(draw("circle", { class: "ring", r: 12, visibility: "hidden" }));
    root.addEventListener("pointermove", near);
    root.addEventListener("pointerleave", () => read(null));
    root.addEventListener("blur", () => read(null));
    root.addEventListener("keydown", keys);
    host.replaceChildren(root, tip);
  }

  // Names where few are shown, then the ends of sweeps; a text that would lie on another one is left out.
  function names(root) {
    const taken = [];
    const put = (x, y, text, style) => {
      const [cx, cy, wide] = [frame.x(x), frame.y(y), (style === "strong" ? 7.4 : 6) * text.length];
      const options = [[10, -10, "start"], [10, 18, "start"], [-10, -10, "end"], [-10, 18, "end"], [10, -24, "start"], [10, 32, "start"]];
      const free = options.map(([dx, dy, anchor]) => ({ dx, dy, anchor, left: anchor === "start" ? cx + dx : cx + dx - wide, top: cy + dy - 12 }))
        .find((b) => b.left > frame.box.left && b.left + wide < frame.box.right && b.top > frame.box.top - 8 && b.top + 16 < frame.box.bottom &&
          !taken.some((t) => b.left < t.left + t.wide && t.left < b.left + wide && Math.abs(b.top - t.top) < 15));
      if (!free) return;
      taken.push({ ...free, wide });
      root.append(draw("text", { class: style, x: cx + free.dx, y: cy + free.dy, "text-anchor": free.anchor }, text));
    };
    // Nothing is written over a mean.
    for (const point of points) taken.push({ left: frame.x(point.x) - 8, top: frame.y(point.y) - 8, wide: 16 });
    if (points.length <= 9) points.forEach((point) => put(point.x, point.y, point.group.title, "strong"));
    else for (const { x, y, text } of sweepEnds(groups)) put(x, y, text, "faint");
  }

  function near(event) {
    const inside = host.querySelector("svg").getBoundingClientRect();
    const [px, py] = [event.clientX - inside.left, event.clientY - inside.top];
    let [best, gap] = [null, 22];
    spots.forEach((spot, index) => {
      const far = Math.hypot(frame.x(spot.x) - px, frame.y(spot.y) - py) - (spot.seed === null ? 4 : 0);
      if (far < gap) [best, gap] = [index, far];
    });
    read(best);
  }

  function keys(event) {
    const means = spots.flatMap((spot, index) => (spot.seed === null ? [index] : []));
    const own = (index) => spots.flatMap((spot, i) => (spot.point === spots[index].point ? [i] : []));
    if (event.key === "Escape") read(null);
    else if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
      const step = event.key === "ArrowRight" ? 1 : -1;
      const mean = at === null ? -1 : means.indexOf(own(at)[0]);
      read(means[at === null ? 0 : Math.min(Math.max(mean + step, 0), means.length - 1)]);
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      const mine = own(at ?? 0);
      const place = mine.indexOf(at ?? 0) + (event.key === "ArrowDown" ? 1 : -1);
      read(mine[Math.min(Math.max(place, 0), mine.length - 1)]);
    } else return;
    event.preventDefault();
  }

  function read(index) {
    at = index;
    const ring = host.querySelector(".ring");
    ring.setAttribute("visibility", index === null ? "hidden" : "visible");
    if (index === null) return tip.replaceChildren();
    const { point, seed, x, y } = spots[index];
    const [px, py] = [frame.x(x), frame.y(y)];
    ring.setAttribute("cx", px);
    ring.setAttribute("cy", py);
    const [head, ...lines] = planeText(point, seed);
    tip.replaceChildren(el("strong", {}, head), ...lines.map((line) => el("div", {}, line)));
    tip.style.left = px > size / 2 ? "" : `${px + 16}px`;
    tip.style.right = px > size / 2 ? `${size - px + 16}px` : "";
    tip.style.top = `${Math.max(py - 40, 4)}px`;
    return undefined;
  }

  whenSized(host, () => size, render);
  render();
  return host;
}

function planeAxes(root, { x, y, box, x0, x1, y0, y1 }) {
  for (const value of ticks(y0, y1)) {
    root.append(draw("line", { class: "grid", x1: box.left, x2: box.right, y1: y(value), y2: y(value) }),
      draw("text", { x: box.left - 8, y: y(value) + 4, "text-anchor": "end" }, plain(Number(value.toPrecision(6)))));
  }
  for (const value of ticks(x0, x1, 6)) {
    root.append(draw("line", { class: value === 0 ? "zero" : "grid", x1: x(value), x2: x(value), y1: box.top, y2: box.bottom }),
      draw("text", { x: x(value), y: box.bottom + 18, "text-anchor": "middle" }, plain(Number(value.toPrecision(6))).replace("-", "−")));
  }
  root.append(draw("text", { x: 4, y: 14 }, "learning accuracy, % (up: plastic)"),
    draw("text", { x: (box.left + box.right) / 2, y: box.bottom + 40, "text-anchor": "middle" }, "forgetting, points (left: stable)"));
}

// On such a line AAC is the same, where every task is at its best when it is new.
function equalAccuracy(root, { x, y, box, x0, x1, y0, y1 }, tasks) {
  const slope = (tasks - 1) / tasks;
  const marks = ticks(y0 - slope * x1, y1 - slope * x0, 9);
  const named = []; // where a number stands: the next one keeps clear of it
  for (const value of marks) {
    // Where it enters and leaves the box.
    const from = Math.max(x0, (y0 - value) / slope);
    const to = Math.min(x1, (y1 - value) / slope);
    if (from >= to) continue;
    root.append(draw("line", { class: "equal", x1: x(from), y1: y(value + slope * from), x2: x(to), y2: y(value + slope * to) }));
    const [right, top] = [x(to) - 4, y(value + slope * to) + 14];
    if (right < box.left + 66 || top > box.bottom - 4 || named.some(([a, b]) => Math.abs(a - right) < 70 && Math.abs(b - top) < 16)) continue;
    named.push([right, top]);
    root.append(draw("text", { class: "faint", x: right, y: top, "text-anchor": "end" }, `AAC ${plain(Number(value.toPrecision(6)))} %`));
  }
}

function sweepsOf(groups) {
  return DATA.sweeps.map((sweep) => ({ ...sweep, along: sweep.groups.map((index) => DATA.groups[index]) }))
    .filter(({ along }) => groups.includes(along.at(-1)) && along.every((group) => group.metrics.forgetting[0] !== null));
}

function sweepLines(root, { x, y }, groups) {
  for (const { along } of sweepsOf(groups)) {
    const last = along.at(-1);
    root.append(draw("polyline", { class: "sweep", points: along.map(planePoint).map((p) => `${x(p.x)},${y(p.y)}`).join(" "), fill: "none",
      stroke: styleOf(last).color, "stroke-dasharray": DASHES[last.variant] }));
  }
}

function sweepEnds(groups) {
  return sweepsOf(groups).flatMap(({ along, values, setting }) => [[along.at(-1), values.at(-1)], [along[0], values[0]]]
    .map(([group, value]) => ({ ...planePoint(group), text: `${SIGNS[setting]} = ${plain(value)}` })));
}

function planeMarks(root, point, { x, y }, spots) {
  const { group } = point;
  const { color: stroke } = styleOf(group);
  const [cx, cy] = [x(point.x), y(point.y)];
  const seeds = point.seeds.length > 1 ? point.seeds : [];
  for (const seed of seeds) {
    root.append(draw("path", { d: SHAPES[group.variant](x(seed.x), y(seed.y), 3), fill: stroke, opacity: 0.45 }));
  }
  if (point.dx !== null) {
    root.append(draw("line", { x1: x(point.x - point.dx), x2: x(point.x + point.dx), y1: cy, y2: cy, stroke, "stroke-width": 1.5 }),
      draw("line", { x1: cx, x2: cx, y1: y(point.y - point.dy), y2: y(point.y + point.dy), stroke, "stroke-width": 1.5 }));
  }
  root.append(draw("path", { class: "mean", d: SHAPES[group.variant](cx, cy, 6.5), fill: stroke, stroke: "var(--panel)", "stroke-width": 1.5 }));
  spots.push({ point, seed: null, x: point.x, y: point.y },
    ...seeds.map((seed, index) => ({ point, seed: index, x: seed.x, y: seed.y })));
}

function shapeSwatch(group) {
  return draw("svg", { viewBox: "0 0 18 14", width: 18, height: 14, "aria-hidden": true },
    draw("path", { d: SHAPES[group.variant](9, 7, 6), fill: styleOf(group).color }));
}

function plane() {
  const possible = (group) => group.metrics.forgetting[0] !== null && group.tasks > 1;
  if (!DATA.groups.some(possible)) return;
  const legend = el("div", { class: "legend", role: "group", "aria-label": "Methods on the plane" });
  const host = el("div");
  const save = el("div");
  const off = new Set(kept("off", "").split(".").filter(Boolean));
  section("plane", "Stability and plasticity",
    "How well a task is learned when it is new, against how much is lost later. Large marks are means over seeds with one " +
    "standard error, small ones are seeds: circles plain, squares AFEC, triangles ANCL. On a dotted line AAC is the same where every " +
    "task is at its best when it is new; up and left is better. Thin lines join the means along λ of a plain method or λ_a of a variant.",
    legend, host, save);
  let groups = [];

  function show() {
    groups = ofStream().filter(possible);
    const methods = [...new Map(groups.map((group) => [group.method, group])).values()];
    legend.replaceChildren(...methods.map((group) => {
      const box = el("input", { type: "checkbox", onchange: () => {
        if (box.checked) off.delete(group.method); else off.add(group.method);
        keep("off", [...off].join("."), "");
        render();
      } });
      box.checked = !off.has(group.method);
      return el("label", {}, box, shapeSwatch(group), group.title.replace(/ \(.*/, ""));
    }));
    render();
  }

  function render() {
    const shown = groups.filter((group) => !off.has(group.method));
    if (!shown.length) {
      save.replaceChildren();
      return host.replaceChildren(el("p", { class: "soft" }, groups.length ? "No method is switched on." : "One task has no forgetting."));
    }
    host.replaceChildren(planeChart(shown));
    const rows = () => [["method", "seed", "forgetting, points", "learning accuracy, %", "AAC, %"],
      ...shown.flatMap((g) => g.seeds.map((seed, i) => [g.title, seed,
        ...["forgetting", "learning_accuracy", "aac"].map((name) => (g.by_seed[name][i] === null ? null : 100 * g.by_seed[name][i]))]))];
    save.replaceChildren(saveBar(() => `plane ${STREAMS[STREAM.index]}`, rows, () => host.querySelector("svg")));
    return undefined;
  }

  onStream(show);
}
