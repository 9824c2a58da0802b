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
    ["searched", "method", "λ", "λ_a", "score, %", "choice"],
    search.trials.map((trial) => [
      trial.step === "lamb" ? "λ" : "λ_a", trial.method, plain(trial.lamb), plain(trial.lamb_a),
      percent(trial.mean), trial.chosen ? el("strong", {}, "chosen") : "",
    ])));
  section("grids", "Searches", "Every value tried; no test image took part in a choice.", tables);
}

function limits() {
  const noted = new Map();
  for (const group of DATA.groups) {
    for (const note of group.notes) {
      const key = `${group.stream}\n${note}`;
      noted.set(key, [...(noted.get(key) || []), group.title]);
    }
  }
  if (!noted.size) return;
  const whole = (stream, titles) => titles.length > 1 && titles.length === DATA.groups.filter((g) => g.stream === stream).length;
  section("limits", "Limits", "What a reader of these numbers should know.",
    simpleTable("Limits of results", ["benchmark", "method", "what"], [...noted].map(([key, titles]) => {
      const [stream, note] = key.split("\n");
      return [stream, whole(stream, titles) ? "all" : titles.join(", "), note];
    })));
}

function expectedNumbers() {
  const known = DATA.groups.filter((group) => group.expected);
  const unlike = DATA.groups.filter((group) => group.not_beside.length);
  if (!known.length && !unlike.length) return;
  const rows = known.map((group) => [
    group.stream, group.title, METRIC[group.decisive].label, `${withError(group.metrics[group.decisive])} %`,
    `${withError(group.expected.slice(0, 2))} % (${expectedSource(group)})`,
    group.unlike_expected.length ? group.unlike_expected.join("; ") : "none known",
  ]);
  section("expected", "Beside expected numbers",
    "The paper’s numbers, or those measured for the benchmark. If images or network differ, or the epochs are fewer, no number stands beside ours.",
    known.length ? simpleTable("Ours and the expected", ["benchmark", "method", "metric", "ours", "expected", "differences of protocol"], rows) : null,
    unlike.length ? simpleTable("Not beside expected numbers", ["benchmark", "method", "why"],
      unlike.map((group) => [group.stream, group.title, group.not_beside.join("; ")])) : null);
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
      el("ul", { class: "soft" }, group.runs.map((name, i) => el("li", {},
        `seed ${group.seeds[i]}: `, group.links[i] ? el("a", { href: group.links[i] }, name) : name))),
      el("div", { class: "columns" }, el("pre", { tabindex: 0 }, group.spec), el("pre", { tabindex: 0 }, group.environment)))));
}

function damaged() {
  if (!DATA.damaged.length) return;
  section("damaged", "Not reported", "Directories that are incomplete, or that repeat a seed.",
    simpleTable("Left out", ["directory", "why"], DATA.damaged.map((each) => [each.name, each.reason])));
}

function chooseStream() {
  if (STREAMS.length < 2) return;
  const label = select("Benchmark of headline, plane, curves and matrices", STREAMS, (index) => {
    STREAM.index = index;
    keep("show", "", "");
    STREAM.listeners.forEach((show) => show());
  }, "on");
  document.getElementById("content").before(el("div", { class: "controls", id: "stream", role: "region", "aria-label": "Benchmark" }, label));
}

(function build() {
  const runs = DATA.groups.reduce((count, group) => count + group.runs.length, 0);
  document.getElementById("summary").textContent =
    `${runs} runs, ${DATA.groups.length} methods or settings, ${shortList(STREAMS, 3) || "no benchmark"}; ancl ${DATA.version}`;
  if (DATA.groups.length) {
    chooseStream();
    headline();
    plane();
    overview();
    accuracyCurves();
    matrices();
  }
  explorer();
  if (DATA.groups.length) {
    trainingCurves();
    parameterCurves();
    timeBars();
  }
  grids();
  limits();
  expectedNumbers();
  if (DATA.groups.length) {
    formulas();
    specs();
  }
  damaged();
  const wanted = VIEW.at && document.getElementById(VIEW.at);
  if (wanted) wanted.scrollIntoView();
})();
