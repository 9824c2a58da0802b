// What was found: sentences, then every difference to a host with its seeds and interval.
const DOTS = { tall: 54, low: 34, label: 0.34, number: 170 };

function differencesChart(pairs) {
  const host = el("div", { class: "chart" });
  const tip = el("p", { class: "reading", role: "status" }, "Point at a row, or use the arrow keys.");
  const shown = pairs.filter((group) => !group.difference.refused);
  let [at, width] = [null, 0];

  function reach() {
    const dots = shown.flatMap((group) => group.difference.gaps);
    const [low, high] = [Math.min(0, ...dots), Math.max(0, ...dots)];
    const room = 0.35 * (high - low) || 0.01;
    // The interval of two seeds is many times as wide as they are apart; it is cut there.
    const ends = shown.flatMap((group) => group.difference.interval).filter((v) => v !== null);
    const [left, right] = [Math.max(low - room, Math.min(low, ...ends)), Math.min(high + room, Math.max(high, ...ends))];
    return left < right ? [left, right] : [left - 0.01, right + 0.01];
  }

  function render() {
    width = widthOf(host);
    const narrow = width < 640;
    const step = narrow ? DOTS.tall : DOTS.low;
    const box = {
      left: narrow ? 12 : width * DOTS.label, right: width - (narrow ? 12 : DOTS.number), top: 8,
      bottom: 8 + step * shown.length,
    };
    const [low, high] = reach();
    const x = (v) => box.left + ((box.right - box.left) * (v - low)) / (high - low);
    const root = draw("svg", { viewBox: `0 0 ${width} ${box.bottom + 44}`, height: box.bottom + 44, role: "img",
      tabindex: 0, "aria-label": `Differences to the ${OTHER} by seed, with their 95 % interval. Arrow keys read the rows.` });
    for (const value of ticks(100 * low, 100 * high, narrow ? 4 : 6)) {
      root.append(draw("line", { class: value ? "grid" : "zero", x1: x(value / 100), x2: x(value / 100), y1: box.top, y2: box.bottom }),
        draw("text", { x: x(value / 100), y: box.bottom + 16, "text-anchor": "middle" }, plain(Number(value.toPrecision(6))).replace("-", "−")));
    }
    const label = METRIC[shown[0].decisive].label;
    root.append(draw("text", { x: (box.left + box.right) / 2, y: box.bottom + 36, "text-anchor": "middle" },
      `${label} minus the ${OTHER}’s, points`));
    shown.forEach((group, index) => row(root, group, { index, x, box, step, narrow, low, high }));
    root.addEventListener("keydown", keys);
    root.addEventListener("pointermove", (event) => read(Math.floor((event.clientY - root.getBoundingClientRect().top - box.top) / step)));
    host.replaceChildren(root);
  }

  function row(root, group, { index, x, box, step, narrow, low, high }) {
    const { gaps, interval, side, estimate, also } = group.difference;
    const top = box.top + step * index;
    const y = narrow ? top + 38 : top + step / 2;
    const stroke = styleOf(group).color;
    const node = draw("g", { class: "row" }, draw("rect", { class: "back", x: 0, y: top, width, height: step }));
    const name = fitted(group.difference.title + (also ? " *" : ""), narrow ? width - 150 : box.left - 16);
    node.append(draw("text", { class: "name", x: narrow ? 12 : 4, y: narrow ? top + 16 : y + 4 }, name),
      draw("text", { class: "name", x: width - (narrow ? 12 : 6), y: narrow ? top + 16 : y + 4, "text-anchor": "end" },
        narrow ? plus(estimate[0]) : withInterval(group.difference)));
    if (interval[0] !== null) {
      const [a, b] = [Math.max(interval[0], low), Math.min(interval[1], high)];
      node.append(draw("line", { x1: x(a), x2: x(b), y1: y, y2: y, stroke, "stroke-width": 2 }));
      if (interval[0] >= low) node.append(draw("line", { x1: x(a), x2: x(a), y1: y - 5, y2: y + 5, stroke, "stroke-width": 2 }));
      if (interval[1] <= high) node.append(draw("line", { x1: x(b), x2: x(b), y1: y - 5, y2: y + 5, stroke, "stroke-width": 2 }));
    }
    for (const gap of gaps) node.append(draw("circle", { cx: x(gap), cy: y, r: 4, fill: stroke, stroke: "var(--panel)", "stroke-width": 1 }));
    node.append(draw("path", { d: diamond(x(estimate[0]), y, 7), fill: side ? stroke : "var(--panel)", stroke, "stroke-width": 2 }));
    root.append(node);
  }

  function read(index) {
    at = Math.min(Math.max(index, 0), shown.length - 1);
    host.querySelectorAll(".row").forEach((node, i) => node.classList.toggle("active", i === at));
    const { title, seeds, gaps, also } = shown[at].difference;
    tip.textContent = `${title}: ${withInterval(shown[at].difference)} points; ` +
      seeds.map((seed, i) => `seed ${seed} ${plus(gaps[i])}`).join(", ") + (also ? `. What else differs: ${also}` : "");
  }

  function keys(event) {
    const steps = { ArrowUp: -1, ArrowDown: 1 };
    if (!(event.key in steps)) return;
    read(at === null ? 0 : at + steps[event.key]);
    event.preventDefault();
  }

  if (!shown.length) return [];
  whenSized(host, () => width, render);
  render();
  const rows = () => [["difference", "metric", "seed", "points", "mean", "95 % low", "95 % high", "what else differs"],
    ...shown.flatMap((group) => group.difference.gaps.map((gap, i) => [
      group.difference.title, METRIC[group.decisive].label, group.difference.seeds[i], 100 * gap,
      ...[group.difference.estimate[0], ...group.difference.interval].map((v) => (v === null ? null : 100 * v)),
      group.difference.also]))];
  return [host, tip, saveBar(() => `differences ${STREAMS[STREAM.index]}`, rows, () => host.querySelector("svg"))];
}

function diamond(x, y, r) {
  return `M${x},${y - r}l${r},${r}l${-r},${r}l${-r},${-r}z`;
}

// Shortens a text that is wider than `pixels`; a letter is about 6.6 pixels wide.
function fitted(text, pixels) {
  const most = Math.max(Math.floor(pixels / 6.6), 8);
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}

function headline() {
  const said = el("ul", { class: "findings" });
  const warned = el("div");
  const host = el("div");
  section("found", "What was found", null, warned, said, host);

  function show() {
    const groups = ofStream();
    const looks = [...new Set(groups.flatMap((group) => group.notes))].filter((note) => note.startsWith("A quick look"));
    warned.replaceChildren(...looks.map((note) => el("p", { class: "warning" }, note)));
    said.replaceChildren(...DATA.findings[STREAMS[STREAM.index]].map((each) => el("li", { class: each.kind }, each.text.replace(/(^|[\s[])-(?=\d)/g, "$1−"))));
    const pairs = groups.filter((group) => group.difference);
    const named = DATA.baselines[STREAMS[STREAM.index]];
    const unlike = pairs.filter((group) => group.difference.also);
    host.replaceChildren(...(pairs.length ? [
      el("h3", {}, named ? `Each method minus ${named}, per seed` : "Each variant minus its host, per seed"),
      el("p", { class: "soft" }, "A dot is a seed, the diamond is their mean, and the line is its 95 % interval (Student’s t) over seeds, " +
        "on these test images: at least one of them each way. A line without an end mark is wider than the figure. " +
        "The diamond is filled if there are at least three seeds and the interval does not contain 0."),
      ...differencesChart(pairs),
      unlike.length ? el("div", { class: "beside" }, el("p", {}, "* What else differs:"),
        el("ul", {}, unlike.map((group) => el("li", {}, el("strong", {}, group.difference.title), `: ${group.difference.also}`)))) : null,
    ].filter(Boolean) : []));
  }

  onStream(show);
}
