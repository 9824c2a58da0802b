// Accuracy over phases and tasks, loss terms over epochs, time by stage.
const VIEWS = [
  { title: "on all tasks so far, after every task", xlabel: "after task", values: (g) => g.phases },
  { title: "on every task, at the end", xlabel: "task", values: (g) => g.finals },
  { title: "on every task, when it was new", xlabel: "task", values: (g) => g.cells.map((row, i) => row[i]) },
  { title: "on the first task, after every task", xlabel: "after task", values: (g) => g.cells.map((row) => row[0]) },
];

function accuracyCurves() {
  const host = el("div");
  const legend = el("div", { class: "legend", role: "group", "aria-label": "Methods shown" });
  let [stream, view, groups, look, hidden] = [0, 0, [], [], new Set()];

  function choose(index) {
    stream = index;
    groups = DATA.groups.filter((group) => group.stream === STREAMS[stream]);
    look = styles(groups);
    hidden = new Set();
    legend.replaceChildren(...groups.map((group, i) => {
      const box = el("input", { type: "checkbox", checked: true, onchange: () => {
        if (box.checked) hidden.delete(i); else hidden.add(i);
        show();
      } });
      return el("label", {}, box, swatch(look[i]), group.title);
    }));
    show();
  }

  function show() {
    const { title, xlabel, values } = VIEWS[view];
    const series = groups
      .map((group, i) => ({ ...look[i], name: group.title, points: values(group).map(bandPoint) }))
      .filter((_, i) => !hidden.has(i));
    const count = Math.max(...groups.map((group) => group.phases.length));
    host.replaceChildren(lineChart({
      label: `Accuracy ${title}, ${STREAMS[stream]}`, xlabel, ylabel: "accuracy, %",
      xs: Array.from({ length: count }, (_, i) => String(i + 1)), series,
    }));
  }

  choose(0);
  section("curves", "Accuracy",
    "Means over seeds with a band of one standard error. A method has one colour: dashed plain, " +
    "dotted with AFEC, solid with ANCL. All tasks so far count the same where the task is known " +
    "(TIL), else by their test images.",
    el("div", { class: "controls" },
      select("Benchmark", STREAMS, choose),
      select("Accuracy", VIEWS.map((each) => each.title), (index) => { view = index; show(); })),
    legend, host);
}

function lossCurves() {
  const groups = DATA.groups.filter((group) => group.trainings.length);
  if (!groups.length) return;
  const host = el("div");
  const key = el("div", { class: "key" });
  let [group, training, split, log] = [groups[0], 0, "train", false];
  const picker = el("span");

  function choose(index) {
    group = groups[index];
    const names = group.trainings.map((t) => `task ${t.task + 1}, ${t.role}`);
    const start = Math.max(group.trainings.findIndex((t) => t.task === 1 && t.role === "main"), 0);
    const label = select("Training", names, (i) => { training = i; show(); });
    label.querySelector("select").selectedIndex = start;
    training = start;
    picker.replaceChildren(label);
    show();
  }

  function show() {
    const found = group.trainings[training];
    const terms = Object.entries(found.terms[split]);
    const series = terms.map(([name, values], index) => ({
      name, color: color(index), dash: "",
      points: values.map((value, i) => ({ i, y: value, text: plain(value) })),
    }));
    host.replaceChildren(lineChart({
      label: `Loss terms of ${group.title}, task ${found.task + 1}`, xlabel: "epoch",
      ylabel: `${split === "lambs" ? "λ by rule" : "loss term"}${log ? ", logarithmic" : ""}`, log,
      xs: found.epochs.map((epoch) => String(epoch + 1)), series,
    }));
    key.replaceChildren(...series.map((each) => el("span", {}, swatch(each), ` ${each.name}`)));
  }

  choose(0);
  const splits = { "training images": "train", "validation images": "val" };
  const ruled = (t) => Object.keys(t.terms.lambs).length > 0;
  if (groups.some((g) => g.trainings.some(ruled))) splits["λ by rule"] = "lambs";
  section("loss", "Loss terms",
    `Each term as it enters the loss, first seed, at most ${DATA.most_points} epochs a training shown.`,
    el("div", { class: "controls" },
      select("Runs", groups.map((g) => `${g.title}, ${g.stream}`), choose), picker,
      select("Values", Object.keys(splits), (i) => { split = Object.values(splits)[i]; show(); }),
      select("Scale", ["linear", "logarithmic"], (i) => { log = i === 1; show(); })),
    key, host);
}

function timeBars() {
  const stages = DATA.groups.map((group) => Object.keys(group.seconds));
  stages.sort((a, b) => b.length - a.length); // the one with most stages has them all in order
  const names = [...new Set(stages.flat())];
  const totals = DATA.groups.map((g) => Object.values(g.seconds).reduce((a, b) => a + b, 0));
  const longest = Math.max(...totals) || 1;
  const rows = DATA.groups.map((group, index) => el("div", { class: "bar" },
    el("span", {}, group.title, STREAMS.length > 1 ? el("span", { class: "soft" }, ` ${group.stream}`) : null),
    el("div", { class: "track", role: "img", "aria-label": Object.entries(group.seconds)
      .map(([name, seconds]) => `${name} ${duration(seconds)}`).join(", ") },
      names.filter((name) => name in group.seconds).map((name) => el("span", {
        title: `${name}: ${duration(group.seconds[name])}`,
        style: `width: ${(100 * group.seconds[name]) / longest}%; background: ${color(names.indexOf(name))}`,
      }))),
    el("span", {}, duration(totals[index]))));
  section("time", "Time by stage",
    "Seconds of one run, mean over seeds, as if nothing had been shared with other runs.",
    el("div", { class: "key" }, names.map((name, i) => el("span", {},
      el("i", { style: `background: ${color(i)}` }), name))), rows);
}
