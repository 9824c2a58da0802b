// The overview that sorts and filters, and accuracy matrices as coloured tables.
function sortable(caption, columns, rows) {
  const body = el("tbody");
  let order = { column: -1, up: true };
  let words = [];
  const heads = columns.map((column, index) => el("th", {
    scope: "col", class: column.number ? `number ${column.small ? "small" : ""}` : null, "aria-sort": "none",
  }, el("button", { type: "button", onclick: () => sort(index) }, column.title)));

  function sort(index) {
    const first = !columns[index].number; // names go up at first, numbers down
    order = { column: index, up: order.column === index ? !order.up : first };
    heads.forEach((head, i) => head.setAttribute(
      "aria-sort", i !== index ? "none" : order.up ? "ascending" : "descending"));
    refresh();
  }

  function refresh() {
    const shown = rows.filter((row) => words.every((word) => row.some(
      (cell) => cell.text.toLowerCase().includes(word))));
    if (order.column >= 0) {
      shown.sort((a, b) => {
        const [left, right] = [a[order.column].value, b[order.column].value];
        if (left === null || right === null) return (left === null) - (right === null);
        const sign = typeof left === "number" ? left - right : left.localeCompare(right);
        return order.up ? sign : -sign;
      });
    }
    body.replaceChildren(...shown.map((row) => el("tr", {}, row.map((cell, i) => el(
      "td", { class: columns[i].number ? "number" : null, title: cell.title }, cell.text)))));
    count.textContent = `${shown.length} of ${rows.length} shown`;
  }

  const count = el("span", { class: "soft", role: "status" });
  const filter = el("input", {
    type: "search", placeholder: "such as lwf cifar",
    oninput: () => { words = filter.value.toLowerCase().split(/\s+/).filter(Boolean); refresh(); },
  });
  refresh();
  return [
    el("div", { class: "controls" }, el("label", {}, "Filter rows", filter), count),
    el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
      el("table", {}, el("caption", {}, caption), el("thead", {}, el("tr", {}, heads)), body)),
  ];
}

function textCell(text) { return { text, value: text }; }

function numberCell(estimate, show = withError, title = null) {
  return estimate ? { text: show(estimate), value: estimate[0], title } : { text: "", value: null };
}

function overview() {
  const decides = new Set(DATA.groups.map((group) => group.decisive));
  const first = DATA.metrics.filter((m) => decides.has(m.name));
  const known = (m) => DATA.groups.some((group) => group.metrics[m.name][0] !== null);
  const others = DATA.metrics.filter((m) => !decides.has(m.name) && known(m));
  const hosts = DATA.groups.some((group) => group.difference);
  const papers = DATA.groups.some((group) => group.paper);
  const unit = (m) => (m.unit.startsWith("difference") ? "points" : "%");
  const heading = (m) => ({ title: `${m.label}, ${unit(m)}`, number: true });
  const columns = [
    { title: "benchmark" }, { title: "method" }, { title: "n", number: true, small: true },
    ...first.map(heading),
    ...(hosts ? [{ title: "minus host, points", number: true }] : []),
    ...(papers ? [{ title: "paper, %", number: true }] : []),
    ...others.map(heading),
    { title: "time", number: true, small: true },
  ];
  const rows = DATA.groups.map((group) => {
    const seconds = Object.values(group.seconds).reduce((a, b) => a + b, 0);
    const unlike = group.difference && group.difference.unlike.length
      ? `also differ in ${group.difference.unlike.join(", ")}` : null;
    return [
      textCell(group.stream), textCell(group.title),
      { text: String(group.seeds.length), value: group.seeds.length },
      ...first.map((m) => numberCell(group.metrics[m.name])),
      ...(hosts ? [numberCell(group.difference && group.difference.estimate, signed, unlike)] : []),
      ...(papers ? [numberCell(group.paper, (e) => withError(e.slice(0, 2)))] : []),
      ...others.map((m) => numberCell(group.metrics[m.name])),
      { text: duration(seconds), value: seconds },
    ];
  });
  section("overview", "Overview",
    "Mean ± standard error over n seeds. “Minus host” is a variant minus its plain method in AAC " +
    "(TIL) or AIAC, paired by seed. Time is that of one run, with nothing shared.",
    sortable("All methods; a heading sorts", columns, rows));
}

function heatTable(group) {
  const reading = el("p", { class: "reading", role: "status" }, "Point at a cell, or use the arrow keys.");
  const count = group.cells.length;
  const cells = new Map();
  const head = el("tr", {}, el("th", { scope: "col" }, "after"),
    group.cells.map((_, j) => el("th", { scope: "col" }, `task ${j + 1}`)));
  const body = group.cells.map((row, i) => el("tr", {}, el("th", { scope: "row" }, `task ${i + 1}`),
    row.map((estimate, j) => {
      if (!estimate) return el("td", { class: "none" });
      const share = Math.round(8 + 84 * estimate[0]);
      const cell = el("td", {
        style: `background: color-mix(in oklab, var(--heat) ${share}%, var(--panel));` +
          (share > 68 ? "color: #fff" : ""),
        onpointerenter: () => activate(i, j),
      }, percent(estimate[0], 1));
      cells.set(`${i} ${j}`, cell);
      return cell;
    })));
  let at = null;

  function activate(i, j) {
    if (!cells.has(`${i} ${j}`)) return;
    cells.forEach((cell) => cell.classList.remove("active"));
    cells.get(`${i} ${j}`).classList.add("active");
    at = [i, j];
    const estimate = group.cells[i][j];
    reading.textContent = `On task ${j + 1} after task ${i + 1}: ${withError(estimate)} % ` +
      `(n=${estimate[2]}); when it was new: ${withError(group.cells[j][j])} %`;
  }

  function keys(event) {
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (!(event.key in steps)) return;
    const [down, right] = steps[event.key];
    if (at) activate(at[0] + down, at[1] + right);
    else activate(count - 1, 0);
    event.preventDefault();
  }

  const label = `Accuracy in % on each task after each task, ${group.title} on ${group.stream}`;
  return [
    el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label, onkeydown: keys },
      el("table", { class: "heat" }, el("caption", {}, label), el("thead", {}, head), el("tbody", {}, body))),
    reading,
  ];
}

function matrices() {
  const host = el("div");
  const names = DATA.groups.map((group) => `${group.title}, ${group.stream}`);
  const show = (index) => host.replaceChildren(...heatTable(DATA.groups[index]));
  show(0);
  section("matrices", "Accuracy matrices", "Test accuracy, mean over seeds.",
    el("div", { class: "controls" }, select("Runs", names, show)), host);
}
