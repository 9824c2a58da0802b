// Accuracy matrices side by side, or each minus its host’s.
const SHOWN = { wanted: null, listeners: [] }; // the groups that curves and matrices show

function usual(groups) {
  if (groups.length <= 8) return groups;
  // Of many settings of a method the one with most seeds.
  const best = new Map();
  for (const group of groups) {
    const before = best.get(group.method);
    if (!before || group.seeds.length > before.seeds.length) best.set(group.method, group);
  }
  return [...best.values()].slice(0, 12);
}

function shownGroups() {
  const groups = ofStream();
  const wanted = kept("show", null);
  if (wanted === null) return usual(groups);
  const places = new Set(wanted.split(".").map(Number));
  return groups.filter((group) => places.has(group.index));
}

// One legend for curves and matrices: a method switched off is off in both.
function methodLegend() {
  const legend = el("div", { class: "legend", role: "group", "aria-label": "Methods shown" });
  const count = el("summary");
  const host = el("div");

  function boxes() {
    const on = new Set(shownGroups());
    const many = ofStream().length > 12;
    count.textContent = `Methods shown: ${on.size} of ${ofStream().length}`;
    if (many && legend.parentNode?.tagName !== "DETAILS") host.replaceChildren(el("details", {}, count, legend));
    else if (!many) host.replaceChildren(legend);
    legend.replaceChildren(...ofStream().map((group) => {
      const box = el("input", { type: "checkbox", onchange: () => {
        if (box.checked) on.add(group); else on.delete(group);
        const chosen = ofStream().filter((each) => on.has(each));
        keep("show", chosen.map((each) => each.index).join("."), usual(ofStream()).map((each) => each.index).join("."));
        SHOWN.listeners.forEach((listen) => listen());
      } });
      box.checked = on.has(group);
      return el("label", {}, box, swatch(lineStyle(group)), group.title);
    }));
  }

  SHOWN.listeners.push(boxes);
  boxes();
  return host;
}

const MINUS = `minus the ${OTHER}`;

function heatCells(group, minus) {
  if (!minus) return group.cells.map((row) => row.map((cell) => cell && cell[0]));
  return group.difference.cells;
}

function heatColor(value, minus, most) {
  if (!minus) return `color-mix(in srgb, var(--heat) ${Math.round(6 + 60 * value)}%, var(--panel))`;
  const share = Math.round(74 * Math.min(Math.abs(value) / (most || 1), 1));
  return `color-mix(in srgb, var(--${value < 0 ? "less" : "more"}) ${share}%, var(--panel))`;
}

function heatTable(group, minus, most, reading) {
  const values = heatCells(group, minus);
  const small = group.tasks > 10;
  const text = (v) => (minus ? plus(v, 1) : percent(v, 1));
  const cells = new Map();
  const head = el("tr", {}, el("th", { scope: "col" }, "after"),
    values[0].map((_, j) => el("th", { scope: "col", title: taskName(group, j) }, String(taskOf(group, j)))));
  const body = values.map((row, i) => el("tr", {}, el("th", { scope: "row" }, String(i + 1)),
    row.map((value, j) => {
      if (value === null) return el("td", { class: "none" });
      const cell = el("td", { style: `background: ${heatColor(value, minus, most)}`,
        onpointerenter: () => activate(i, j) }, small ? el("span", { class: "hidden" }, text(value)) : text(value));
      cells.set(`${i} ${j}`, cell);
      return cell;
    })));
  let at = null;

  function activate(i, j) {
    if (!cells.has(`${i} ${j}`)) return;
    document.querySelectorAll("#matrices td.active").forEach((cell) => cell.classList.remove("active"));
    cells.get(`${i} ${j}`).classList.add("active");
    at = [i, j];
    const estimate = group.cells[i][j];
    const fresh = group.cells.map((row) => row[j]).find(Boolean);
    reading.textContent = `${group.title}, on ${taskName(group, j)} after task ${i + 1}: ${withError(estimate)} % (n=${estimate[2]}); ` +
      `when it was new: ${withError(fresh)} %${minus ? `; ${MINUS}: ${plus(values[i][j])} points` : ""}`;
  }

  function keys(event) {
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (!(event.key in steps)) return;
    const [down, right] = steps[event.key];
    if (at) activate(at[0] + down, at[1] + right);
    else activate(values.length - 1, 0);
    event.preventDefault();
  }

  const title = minus ? group.difference.title : group.title;
  return el("div", { class: "scroll", tabindex: 0, role: "region", onkeydown: keys,
    "aria-label": `${minus ? "Points" : "Accuracy in %"} on each task after each task, ${title}. Arrow keys read the cells.` },
    el("table", { class: small ? "heat small" : "heat" }, el("caption", {}, title), el("thead", {}, head), el("tbody", {}, body)));
}

// The same as a drawing, for PNG.
function heatDrawing(groups, minus, most) {
  const cell = 38;
  const across = Math.min(groups.length, 3);
  const width = across * (cell * (groups[0].tasks + 1) + 20) + 20;
  const tall = cell * (Math.max(...groups.map((group) => group.cells.length)) + 1) + 40;
  const root = draw("svg", { viewBox: `0 0 ${width} ${tall * Math.ceil(groups.length / across) + 20}`, class: "drawing", width });
  groups.forEach((group, k) => {
    const [left, top] = [20 + (k % across) * (cell * (group.tasks + 1) + 20), 20 + Math.floor(k / across) * tall];
    root.append(draw("text", { class: "name", x: left, y: top + 4 }, minus ? group.difference.title : group.title));
    heatCells(group, minus).forEach((row, i) => {
      root.append(draw("text", { x: left + 24, y: top + cell * (i + 1) + 23, "text-anchor": "end" }, String(i + 1)));
      row.forEach((value, j) => {
        const [x, y] = [left + 30 + cell * j, top + cell * (i + 1)];
        if (i === 0) root.append(draw("text", { x: x + 18, y: y - 6, "text-anchor": "middle" }, String(taskOf(group, j))));
        if (value === null) return;
        root.append(draw("rect", { x, y, width: cell - 2, height: cell - 2, style: `fill: ${heatColor(value, minus, most)}` }),
          draw("text", { class: "name", x: x + 18, y: y + 23, "text-anchor": "middle" }, minus ? plus(value, 1) : percent(value, 1)));
      });
    });
  });
  return root;
}

function matrices() {
  const host = el("div", { class: "side" });
  const reading = el("p", { class: "reading", role: "status" }, "Point at a cell, or use the arrow keys.");
  const classes = el("div");
  const unseen = el("div", { class: "unseen", "aria-hidden": true });
  let [groups, minus, most] = [[], false, 0];

  function show() {
    const found = shownGroups();
    groups = minus ? found.filter((group) => group.difference && !group.difference.refused) : found;
    most = Math.max(...groups.flatMap((group) => (minus ? heatCells(group, true).flat().map(Math.abs) : [0])), 0);
    host.replaceChildren(...groups.map((group) => heatTable(group, minus, most, reading)));
    if (!groups.length) {
      host.replaceChildren(el("p", { class: "soft" }, minus ? "No method that is switched on can be compared with another." : "No method is switched on."));
    }
    const names = DATA.classes[STREAMS[STREAM.index]] || [];
    classes.replaceChildren(...(names.length ? [el("details", {}, el("summary", {}, "The classes of each task"),
      el("ul", {}, names.map((each, j) => el("li", {}, `task ${taskOf(ofStream()[0], j)}: ${each.join(", ")}`))))] : []));
  }

  const modes = ["accuracy, %", MINUS];
  const mode = select("Show", modes, (index) => { minus = index === 1; show(); }, "matrix");
  minus = mode.index === 1;
  const drawing = () => {
    unseen.replaceChildren(heatDrawing(groups, minus, most));
    return unseen.firstChild;
  };
  const rows = () => [["method", "shown", "after", "task", "value"],
    ...groups.flatMap((group) => heatCells(group, minus).flatMap((row, i) => row.flatMap((value, j) => (value === null ? []
      : [[group.title, modes[minus ? 1 : 0], i + 1, taskOf(group, j), 100 * value]]))))];
  section("matrices", "Accuracy matrices",
    `Test accuracy on each task (columns) after each task (rows), mean over seeds; or the same ${MINUS}’s, in points.`,
    el("div", { class: "controls" }, mode), methodLegend(), host, reading,
    saveBar(() => `matrices ${STREAMS[STREAM.index]}`, rows, drawing), classes, unseen);
  SHOWN.listeners.push(show);
  onStream(() => SHOWN.listeners.forEach((listen) => listen()));
}
