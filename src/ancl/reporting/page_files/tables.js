// The overview: six columns and the rest on demand; it sorts and filters.
function sortable(caption, columns, rows) {
  const body = el("tbody");
  const head = el("tr");
  const titles = columns.map((column) => column.title);
  const [start, way] = [titles.indexOf(kept("sort", "").replace(/ (up|down)$/, "")), kept("sort", "").endsWith(" up")];
  let order = { column: start, up: way };
  let all = false;
  const count = el("span", { class: "soft", role: "status" });
  const filter = el("input", { type: "search", placeholder: "such as lwf cifar", oninput: () => {
    keep("find", filter.value, "");
    refresh();
  } });
  filter.value = kept("find", "");

  function sort(index) {
    const first = !columns[index].number; // names go up at first, numbers down
    order = { column: index, up: order.column === index ? !order.up : first };
    keep("sort", `${titles[index]} ${order.up ? "up" : "down"}`, "");
    heads();
    refresh();
    head.querySelectorAll("button")[shown().indexOf(index)].focus();
  }

  function shown() {
    return columns.flatMap((column, index) => (all || !column.more ? [index] : []));
  }

  function heads() {
    head.replaceChildren(...shown().map((i) => el("th", {
      scope: "col", class: [columns[i].number ? "number" : "", i ? "" : "fixed"].join(" ").trim() || null,
      "aria-sort": i !== order.column ? "none" : order.up ? "ascending" : "descending",
    }, el("button", { type: "button", title: columns[i].about, onclick: () => sort(i) }, columns[i].title))));
  }

  function refresh() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = rows.filter((row) => words.every((word) => row.some((cell) => cell.text.toLowerCase().includes(word))));
    if (order.column >= 0) {
      found.sort((a, b) => {
        const [left, right] = [a[order.column].value, b[order.column].value];
        if (left === null || right === null) return (left === null) - (right === null);
        const sign = typeof left === "number" ? left - right : left.localeCompare(right, undefined, { numeric: true });
        return order.up ? sign : -sign;
      });
    }
    body.replaceChildren(...found.map((row) => el("tr", {}, shown().map((i) => cellNode(row[i], columns[i], i === 0)))));
    count.textContent = `${found.length} of ${rows.length} shown`;
  }

  const more = checkbox("All columns", "columns", false, (on) => { all = on; heads(); refresh(); });
  all = more.on;
  heads();
  refresh();
  const table = el("table", { class: "overview" }, el("caption", {}, caption), el("thead", {}, head), body);
  // What stands below a number on the page, its error or a note, is a column of its own in the file.
  const written = () => {
    const parts = shown().flatMap((i) => {
      const title = columns[i].saved || titles[i];
      const has = (key) => rows.some((row) => row[i][key] !== undefined && row[i][key] !== null);
      return [[title, (row) => row[i].csv ?? row[i].value ?? row[i].text],
        ...(has("error") ? [[`${title}, standard error`, (row) => row[i].error]] : []),
        ...(has("below") ? [[columns[i].below, (row) => row[i].below]] : [])];
    });
    return [parts.map(([title]) => title), ...rows.map((row) => parts.map(([, value]) => value(row)))];
  };
  return [
    el("div", { class: "controls" }, el("label", {}, "Filter rows", filter), more, count),
    el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption }, table),
    el("p", { class: "save" }, "Save: ", el("button", { type: "button", "data-save": "csv", "aria-label": "Save the table as CSV",
      onclick: () => download("overview.csv", new Blob([csv(written())], { type: "text/csv" })) }, "CSV")),
  ];
}

// The error and a note stand under the number: six columns fit on a telephone.
function cellNode(cell, column, fixed) {
  const [mean, error] = column.number ? cell.text.split(" ± ") : [cell.text];
  const parts = cell.links
    ? cell.links.map(({ text, href }) => (href ? el("a", { href }, text) : el("span", {}, text)))
    : [mean, error ? el("span", { class: "error" }, ` ± ${error}`) : null];
  const inner = [...parts, cell.below ? el("span", { class: "below" }, cell.below) : null];
  return fixed ? el("th", { scope: "row", class: "fixed" }, inner)
    : el("td", { class: column.number ? "number" : cell.links ? "links" : null }, inner);
}

function textCell(text, below = null) { return { text, value: text, below }; }

function numberCell(estimate, show = withError, below = null) {
  return estimate && estimate[0] !== null
    ? { text: show(estimate), value: estimate[0], below, csv: 100 * estimate[0],
      error: estimate[1] === null ? null : 100 * estimate[1] } : { text: "", value: null, below };
}

function groupTime(group) {
  return Object.values(group.seconds).reduce((a, b) => a + b, 0);
}

// What differences are taken to: the baseline that was named, or each variant's host.
function minusText(titles = Object.values(DATA.baselines)) {
  const names = [...new Set(titles)];
  return !names.length ? "minus host" : names.length > 1 ? "minus baseline" : `minus ${names[0]}`;
}

function minusAbout() {
  return Object.keys(DATA.baselines).length ? "A method minus the baseline" : "A variant minus its plain method";
}

function overviewColumns() {
  const decides = [...new Set(DATA.groups.map((group) => group.decisive))];
  const six = [...decides, "forgetting", "learning_accuracy"];
  const known = (m) => DATA.groups.some((group) => group.metrics[m.name][0] !== null);
  const unit = (m) => (m.unit.startsWith("difference") ? "points" : "%");
  const metric = (name, title, more = false) => ({
    title: `${title || METRIC[name].label}, ${unit(METRIC[name])}`, about: METRIC[name].formula, number: true, more,
    cell: (group) => numberCell(group.metrics[name]),
  });
  const difference = ({ difference: found }) => (found
    ? numberCell(found.estimate, signed, found.also || null) : { text: "", value: null });
  const cost = (name, title, unit) => ({ title, number: true, more: true, about: "Of all trainings of a run; validation is not in it",
    cell: ({ costs }) => {
      const total = Object.values(costs).reduce((sum, each) => sum + each[name], 0) / unit;
      return total ? { text: total.toPrecision(3), value: total, csv: total } : { text: "", value: null };
    } });
  const sizes = DATA.groups.some((group) => group.parameters.length);
  const million = (count) => `${(count / 1e6).toFixed(2)}`;
  const last = (name, title) => ({ title, number: true, more: true, cell: ({ parameters }) => (parameters.length
    ? { text: million(parameters.at(-1)[name]), value: parameters.at(-1)[name], csv: parameters.at(-1)[name] / 1e6 } : { text: "", value: null }) });
  return [
    { title: "method", below: "benchmark", cell: (group) => textCell(group.title, STREAMS.length > 1 ? group.stream : null) },
    { title: `${decides.map((name) => METRIC[name].label).join(" or ")}, %`, number: true, below: "metric", about: decides.map((name) => METRIC[name].formula).join(" or "),
      cell: (group) => numberCell(group.metrics[group.decisive], withError, decides.length > 1 ? METRIC[group.decisive].label : null) },
    { title: `${minusText()}, points`, number: true, below: "what else differs", about: `${minusAbout()}, paired by seed`, cell: difference },
    metric("forgetting", "forgetting"), metric("learning_accuracy", "learning"),
    { title: "n", number: true, about: "seeds", cell: ({ seeds }) => ({ text: String(seeds.length), value: seeds.length }) },
    ...(DATA.groups.some((group) => group.expected) ? [{ title: "expected, %", number: true, more: true, below: "expected from",
      about: "The paper’s number, or the one measured for the benchmark",
      cell: (group) => numberCell(group.expected, (e) => withError(e.slice(0, 2)), group.expected ? expectedSource(group) : null) }] : []),
    ...DATA.metrics.filter((m) => !six.includes(m.name) && known(m)).map((m) => metric(m.name, null, true)),
    ...(sizes ? [last("stored", "parameters, million"), last("trained", "trained in the last task, million")] : []),
    ...(DATA.groups.some((group) => Object.keys(group.costs).length) ? [
      cost("images", "images trained on, thousand", 1e3), cost("backward", "backward passes, thousand", 1e3),
      cost("flops", "training FLOPs, 10⁹", 1e9)] : []),
    { title: "time", saved: "time, seconds", number: true, more: true, cell: (group) => ({ text: duration(groupTime(group)), value: groupTime(group) }) },
    { title: "runs", more: true, cell: (group) => ({ text: group.runs.join(" "), value: group.runs[0], csv: group.runs.join(" "),
      links: group.links.map((href, i) => ({ href, text: `seed ${group.seeds[i]}` })) }) },
  ];
}

function expectedSource(group) {
  const [, , n, table] = group.expected;
  return table ? `paper, table ${table}` : `measured with ancl, n = ${n}`;
}

function overview() {
  const columns = overviewColumns();
  const rows = DATA.groups.map((group) => columns.map((column) => column.cell(group)));
  section("overview", "Overview",
    `Mean ± standard error over n seeds. “${minusText()[0].toUpperCase()}${minusText().slice(1)}” is ${minusAbout().toLowerCase()} in AAC (TIL) or AIAC, paired by seed; ` +
    "what else differs stands below it, and there is no number where data or network differ. Time is that of one run, with nothing shared.",
    sortable("All methods; a heading sorts", columns, rows));
}
