// What is read rather than explored, and the order of the page.
function simpleTable(caption, head, rows) {
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    el("table", {}, el("caption", {}, caption),
      el("thead", {}, el("tr", {}, head.map((name) => el("th", { scope: "col" }, name)))),
      el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell) => el(
        "td", { class: typeof cell === "string" && cell.length > 40 ? "wrap" : null }, cell)))))));
}

function grids() {
  if (!DATA.grids.length) return;
  const tables = DATA.grids.map((search) => simpleTable(
    `${search.method} on ${search.benchmark}, decided by ${search.decided_by}`,
    ["searched", "method", "λ", "λ_a", "score, %", ""],
    search.trials.map((trial) => [
      trial.step === "lamb" ? "λ" : "λ_a", trial.method, plain(trial.lamb), plain(trial.lamb_a),
      percent(trial.mean), trial.chosen ? el("strong", {}, "chosen") : "",
    ])));
  section("grids", "Searches", "Every value tried; no test image took part in a choice.", tables);
}

function limits() {
  const rows = DATA.groups.flatMap((group) => group.notes.map((note) => [group.stream, group.title, note]));
  if (!rows.length) return;
  section("limits", "Limits", "What a reader of these numbers should know.",
    simpleTable("Limits of results", ["benchmark", "method", "what"], rows));
}

function paper() {
  const groups = DATA.groups.filter((group) => group.paper);
  if (!groups.length) return;
  const rows = groups.map((group) => [
    group.stream, group.title, METRIC[group.decisive].label, `${withError(group.metrics[group.decisive])} %`,
    `${withError(group.paper.slice(0, 2))} % (table ${group.paper[2]})`,
    group.unlike_paper.length ? group.unlike_paper.join("; ") : "none known",
  ]);
  section("paper", "Beside the paper",
    "Where the protocol is another one, the numbers cannot be compared.",
    simpleTable("Ours and the paper’s", ["benchmark", "method", "metric", "ours", "paper", "differences of protocol"], rows));
}

function formulas() {
  section("formulas", "What each number is", `${DATA.legend} Standard errors are s / √n with s over n − 1.`,
    simpleTable("Metrics", ["metric", "formula", "unit"],
      DATA.metrics.map((m) => [m.label, el("code", {}, m.formula), m.unit])));
}

function specs() {
  section("specs", "Settings and versions",
    "The resolved settings of the first seed, as --config reads them, and what it ran on.",
    DATA.groups.map((group) => el("details", {},
      el("summary", {}, `${group.title}, ${group.stream}`, el("span", { class: "soft" }, ` seeds ${group.seeds.join(", ")}`)),
      el("p", { class: "soft" }, `Runs: ${group.runs.join(", ")}`),
      el("div", { class: "columns" }, el("pre", {}, group.spec), el("pre", {}, group.environment)))));
}

function damaged() {
  if (!DATA.damaged.length) return;
  section("damaged", "Not reported", "Directories that are not whole, or that repeat a seed.",
    simpleTable("Left out", ["directory", "why"], DATA.damaged.map((each) => [each.name, each.reason])));
}

(function build() {
  const runs = DATA.groups.reduce((count, group) => count + group.runs.length, 0);
  document.getElementById("summary").textContent =
    `${runs} runs, ${DATA.groups.length} methods or settings, ${STREAMS.join(", ") || "no benchmark"}; ancl ${DATA.version}`;
  if (DATA.groups.length) {
    overview();
    accuracyCurves();
    matrices();
  }
  explorer();
  if (DATA.groups.length) {
    lossCurves();
    timeBars();
  }
  grids();
  limits();
  paper();
  if (DATA.groups.length) {
    formulas();
    specs();
  }
  damaged();
})();
