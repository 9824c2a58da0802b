// Lines with bands and a cross-hair that a pointer or the arrow keys move.
function ticks(low, high, count = 5) {
  const raw = (high - low) / count || 1;
  const size = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((f) => f * size).find((s) => s >= raw * 0.999);
  const values = [];
  // Whole multiples, not sums: those of steps such as 0.05 miss 0 by a rounding error.
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-6; n += 1) values.push(n * step + 0);
  return values;
}

function extent(values, log) {
  const usable = values.filter((v) => v !== null && (!log || v > 0));
  if (!usable.length) return [0, 1];
  let [low, high] = [Math.min(...usable), Math.max(...usable)];
  if (log) return [Math.floor(Math.log10(low)), Math.max(Math.ceil(Math.log10(high)), Math.floor(Math.log10(low)) + 1)];
  const room = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  return [low - room, high + room];
}

// A chart is drawn before it is on the page; then the page’s own width tells what it will have.
function widthOf(host) {
  const content = document.getElementById("content").clientWidth;
  return Math.max(host.clientWidth || content - (innerWidth <= 600 ? 24 : 66), 280);
}

// Draws anew in the next frame: a chart that changes its height while it is measured is an error.
function whenSized(host, width, render) {
  new ResizeObserver(() => requestAnimationFrame(() => {
    if (host.isConnected && width() !== widthOf(host)) render();
  })).observe(host);
}

// options: label, xlabel, ylabel, xs (names along the axis), series, log, format, mark (an index), name (of files).
// A series has name, color, dash, points {i, y, low, high, text} and, for its seeds, thin: lists of y.
function lineChart(options) {
  const tip = el("div", { class: "tip", role: "status", "aria-live": "polite" });
  const host = el("div", { class: "chart" });
  let [at, frame, size] = [null, null, 0];

  function render() {
    const width = widthOf(host);
    size = width;
    const height = options.height || Math.min(340, Math.max(240, width * 0.5));
    const box = { left: 56, right: width - 14, top: 30, bottom: height - 44 };
    const all = options.series.flatMap((s) => s.points.flatMap((p) => [p.y, p.low ?? p.y, p.high ?? p.y]))
      .concat(options.series.flatMap((s) => (s.thin || []).flat()));
    const [low, high] = extent(all, options.log);
    const last = Math.max(options.xs.length - 1, 1);
    const x = (i) => box.left + ((box.right - box.left) * i) / last;
    const scale = (v) => (options.log ? Math.log10(Math.max(v, 1e-300)) : v);
    const y = (v) => box.bottom - ((box.bottom - box.top) * (Math.max(scale(v), low) - low)) / (high - low);
    frame = { x, y, box, width };
    const root = draw("svg", {
      viewBox: `0 0 ${width} ${height}`, height, role: "img", tabindex: 0,
      "aria-label": `${options.label}. Arrow keys read the values.`,
    });
    axes(root, low, high);
    for (const series of options.series) thinLines(root, series, x, y);
    for (const series of options.series) line(root, series, x, y);
    if (options.mark !== undefined) {
      root.append(draw("line", { class: "cross", x1: x(options.mark), x2: x(options.mark), y1: box.top, y2: box.bottom }));
    }
    root.append(draw("line", { class: "cross hair", y1: box.top, y2: box.bottom, visibility: "hidden" }));
    root.addEventListener("pointermove", (event) => {
      const place = event.clientX - root.getBoundingClientRect().left;
      show(Math.round(((place - box.left) / (box.right - box.left)) * last));
    });
    root.addEventListener("pointerleave", () => show(null));
    root.addEventListener("keydown", keys);
    root.addEventListener("blur", () => show(null));
    host.replaceChildren(root, tip);
  }

  function axes(root, low, high) {
    const { x, y, box, width } = frame;
    const marks = options.log
      ? Array.from({ length: high - low + 1 }, (_, i) => 10 ** (low + i))
      : ticks(low, high);
    for (const value of marks) {
      root.append(
        draw("line", { class: "grid", x1: box.left, x2: box.right, y1: y(value), y2: y(value) }),
        draw("text", { x: box.left - 8, y: y(value) + 4, "text-anchor": "end" }, plain(Number(value.toPrecision(6)))),
      );
    }
    const every = Math.ceil(options.xs.length / Math.max(2, Math.floor(width / 60)));
    options.xs.forEach((name, i) => {
      if (i % every) return;
      root.append(draw("text", { x: x(i), y: box.bottom + 18, "text-anchor": "middle" }, name));
    });
    root.append(
      draw("text", { x: (box.left + box.right) / 2, y: box.bottom + 38, "text-anchor": "middle" }, options.xlabel),
      draw("text", { x: 4, y: 14 }, options.ylabel),
    );
  }

  function show(index) {
    const hair = host.querySelector(".hair");
    at = index === null ? null : Math.min(Math.max(index, 0), options.xs.length - 1);
    hair.setAttribute("visibility", at === null ? "hidden" : "visible");
    if (at === null) return tip.replaceChildren();
    hair.setAttribute("x1", frame.x(at));
    hair.setAttribute("x2", frame.x(at));
    const here = options.series
      .map((series) => ({ series, point: series.points.find((p) => p.i === at && p.y !== null) }))
      .filter((each) => each.point)
      .sort((a, b) => b.point.y - a.point.y);
    tip.replaceChildren(
      el("strong", {}, `${options.xlabel} ${options.xs[at]}`),
      ...here.map(({ series, point }) => el("div", {}, swatch(series), ` ${series.name}: ${point.text}`)),
    );
    const right = frame.x(at) > frame.width / 2;
    tip.style.left = right ? "" : `${frame.x(at) + 12}px`;
    tip.style.right = right ? `${frame.width - frame.x(at) + 12}px` : "";
    tip.style.top = "24px";
    return undefined;
  }

  function keys(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1 };
    if (event.key === "Escape") show(null);
    else if (event.key in steps) show(at === null ? 0 : at + steps[event.key]);
    else return;
    event.preventDefault();
  }

  whenSized(host, () => size, render);
  render();
  const rows = () => [[options.xlabel, ...options.series.flatMap((s) => [s.name, ...(s.thin || []).map((_, k) => `${s.name}, ${(s.seeds || [])[k]}`)])],
    ...options.xs.map((name, i) => [name, ...options.series.flatMap((s) => [
      s.points.find((p) => p.i === i)?.y, ...(s.thin || []).map((values) => values[i])])])];
  return el("figure", {}, host, saveBar(() => options.name || options.label, rows, () => host.querySelector("svg")));
}

// The seeds of a series.
function thinLines(root, series, x, y) {
  for (const values of series.thin || []) {
    const points = values.flatMap((v, i) => (v === null || v === undefined ? [] : [`${x(i)},${y(v)}`]));
    root.append(draw("polyline", { class: "thin", points: points.join(" "), fill: "none", stroke: series.color }));
  }
}

function line(root, series, x, y) {
  const points = series.points.filter((p) => p.y !== null);
  const banded = points.filter((p) => p.low !== undefined && p.low !== null);
  if (banded.length > 1) {
    const above = banded.map((p) => `${x(p.i)},${y(p.high)}`);
    const below = banded.map((p) => `${x(p.i)},${y(p.low)}`).reverse();
    root.append(draw("polygon", { points: [...above, ...below].join(" "), fill: series.color, opacity: 0.15 }));
  }
  root.append(draw("polyline", {
    points: points.map((p) => `${x(p.i)},${y(p.y)}`).join(" "), fill: "none",
    stroke: series.color, "stroke-width": 2, "stroke-dasharray": series.dash, "stroke-linejoin": "round",
  }));
  if (points.length > 40) return;
  for (const p of points) root.append(draw("circle", { cx: x(p.i), cy: y(p.y), r: 2.8, fill: series.color }));
}

function swatch(style) {
  return draw("svg", { viewBox: "0 0 28 10", width: 28, height: 10, "aria-hidden": true }, draw("line", {
    x1: 1, x2: 27, y1: 5, y2: 5, stroke: style.color, "stroke-width": 3, "stroke-dasharray": style.dash,
  }));
}

function bandPoint(estimate, i) {
  const [mean, error, n] = estimate;
  const up = (v) => (v === null ? null : 100 * v);
  const known = mean !== null && error !== null;
  return {
    i, y: up(mean), text: `${withError(estimate)} (n=${n})`,
    low: known ? up(mean - error) : undefined, high: known ? up(mean + error) : undefined,
  };
}
