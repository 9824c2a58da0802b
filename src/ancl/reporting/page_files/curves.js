// Accuracy over phases and tasks, trainings over epochs, time by stage.
const CURVES = [
  { name: "phases", title: "on all tasks so far, after every task", xlabel: "after task" },
  { name: "finals", title: "on every task, at the end", xlabel: "task" },
  { name: "news", title: "on every task, when it was new", xlabel: "task" },
  { name: "first", title: "on the first task, after every task", xlabel: "after task" },
];

function accuracyCurves() {
  const host = el("div");
  let [view, seeds] = [0, true];

  function show() {
    const { name, title, xlabel } = CURVES[view];
    const groups = shownGroups();
    const up = (values) => values.map((value) => (value === null ? null : 100 * value));
    const series = groups.map((group) => ({
      ...lineStyle(group), name: group.title, points: group.curves[name].mean.map(bandPoint),
      thin: seeds && group.seeds.length > 1 ? group.curves[name].seeds.map(up) : [],
      seeds: group.seeds.map((seed) => `seed ${seed}`),
    }));
    const count = Math.max(0, ...groups.map((group) => group.curves[name].mean.length));
    host.replaceChildren(groups.length ? lineChart({
      label: `Accuracy ${title}, ${STREAMS[STREAM.index]}`, xlabel, ylabel: "accuracy, %", name: `accuracy ${name} ${STREAMS[STREAM.index]}`,
      xs: Array.from({ length: count }, (_, i) => String(xlabel === "task" ? taskOf(groups[0], i) : i + 1)), series,
    }) : el("p", { class: "soft" }, "No method is switched on."));
  }

  const views = select("Accuracy", CURVES.map((each) => each.title), (index) => { view = index; show(); }, "curve");
  const thin = checkbox("Seeds as thin lines", "seeds", true, (on) => { seeds = on; show(); });
  [view, seeds] = [views.index, thin.on];
  section("curves", "Accuracy",
    "Means over seeds with a band of one standard error. Dashed lines are plain methods, dotted ones AFEC, solid ones ANCL. " +
    "If the task is known (TIL), all tasks so far count the same, else by their test images.",
    el("div", { class: "controls" }, views, thin), methodLegend(), host);
  SHOWN.listeners.push(show);
  onStream(show);
}

function trainingCurves() {
  const groups = DATA.groups.filter((group) => group.trainings.length);
  if (!groups.length) return;
  const [host, beside, key, picker] = [el("div"), el("div", { class: "columns" }), el("div", { class: "key" }), el("span")];
  const names = groups.map((g) => (STREAMS.length > 1 ? `${g.title}, ${g.stream}` : g.title));
  const splits = { "training images": "train", "validation images": "val" };
  const ruled = (t) => Object.keys(t.terms.lambs).length > 0;
  if (groups.some((g) => g.trainings.some(ruled))) splits["λ by rule"] = "lambs";
  let [group, training, split, log] = [null, 0, "train", false];

  function choose(index) {
    group = groups[index];
    const titles = group.trainings.map((t) => `task ${t.task + 1}, ${t.role}${t.stage === t.role ? "" : ` (${t.stage})`}`);
    const start = Math.max(group.trainings.findIndex((t) => t.task === 1 && t.role === "main"), 0);
    const label = select("Training", titles, (i) => { training = i; show(); }, "training", start);
    training = label.index;
    picker.replaceChildren(label);
    show();
  }

  function show() {
    const found = group.trainings[training];
    const xs = found.epochs.map((epoch) => String(epoch + 1));
    const about = `${group.title}, task ${found.task + 1}, ${found.role}`;
    const points = (values, text = plain) => values.map((value, i) => ({ i, y: value, text: text(value) }));
    const series = Object.entries(found.terms[split]).map(([name, values], index) => ({ name: (split !== "lambs" && group.terms[name]) || name, color: color(index), dash: "", points: points(values) }));
    host.replaceChildren(lineChart({
      label: `Loss terms of ${about}`, xlabel: "epoch", log, xs, series,
      ylabel: `${split === "lambs" ? "λ by rule" : "loss term"}${log ? ", logarithmic" : ""}`,
    }));
    key.replaceChildren(...series.map((each) => el("span", {}, swatch(each), ` ${each.name}`)));
    const up = (values) => values.map((v) => (v === null ? null : 100 * v));
    const one = (title, ylabel, values, thin, index) => (values.some((v) => v !== null) ? [el("div", {}, el("h3", {}, title), lineChart({
      label: `${title}, ${about}`, xlabel: "epoch", ylabel, xs, height: 220,
      series: [{ name: `seed ${group.seeds[0]}`, color: color(index), dash: "", points: points(values), thin, seeds: group.seeds.slice(1).map((s) => `seed ${s}`) }],
    }))] : []);
    beside.replaceChildren(
      ...one("Validation accuracy", "accuracy, %", up(found.accuracies[0]), found.accuracies.slice(1).map(up), 2),
      ...one("Learning rate", "learning rate", found.rates, [], 3));
  }

  const which = select("Runs", names, choose, "run");
  const shown = select("Values", Object.keys(splits), (i) => { split = Object.values(splits)[i]; show(); }, "values");
  const scale = select("Scale", ["linear", "logarithmic"], (i) => { log = i === 1; show(); }, "scale");
  [split, log] = [Object.values(splits)[shown.index], scale.index === 1];
  section("loss", "Training",
    `Each term as it enters the loss and the learning rate, first seed; validation accuracy of all seeds, where it was measured, the others as thin lines. ` +
    `At most ${DATA.most_points} epochs of a training are shown.`,
    el("div", { class: "controls" }, which, picker, shown, scale), key, host, beside);
  choose(which.index);
}

function timeBars() {
  const stages = DATA.groups.map((group) => Object.keys(group.seconds));
  stages.sort((a, b) => b.length - a.length); // the one with most stages has them all in order
  const names = [...new Set(stages.flat())];
  const host = el("div", { class: "chart" });
  let size = 0;

  function render() {
    size = widthOf(host);
    const groups = ofStream();
    const narrow = size < 600;
    const step = narrow ? 42 : 26;
    const [left, right] = narrow ? [0, size - 76] : [Math.min(240, size * 0.3), size - 90];
    const longest = Math.max(...groups.map(groupTime)) || 1;
    const root = draw("svg", { viewBox: `0 0 ${size} ${step * groups.length + 4}`, height: step * groups.length + 4, role: "img",
      "aria-label": groups.map((group) => `${group.title} ${duration(groupTime(group))}`).join(", ") });
    groups.forEach((group, k) => {
      const y = k * step + (narrow ? 18 : 2);
      let x = left;
      for (const name of names.filter((each) => each in group.seconds)) {
        const width = ((right - left) * group.seconds[name]) / longest;
        root.append(draw("rect", { x, y, width, height: 20, fill: color(names.indexOf(name)) }, draw("title", {}, `${name}: ${duration(group.seconds[name])}`)));
        x += width;
      }
      root.append(draw("text", { class: "name", x: 0, y: narrow ? y - 5 : y + 15 }, fitted(group.title, narrow ? size : left - 8)),
        draw("text", { class: "name", x: x + 8, y: y + 15 }, duration(groupTime(group))));
    });
    host.replaceChildren(root);
  }

  const rows = () => [["method", "benchmark", ...names.map((name) => `${name}, seconds`)],
    ...DATA.groups.map((group) => [group.title, group.stream, ...names.map((name) => group.seconds[name] ?? 0)])];
  section("time", "Time by stage", "Seconds of one run, mean over seeds, as if nothing had been shared with other runs.",
    el("div", { class: "key" }, names.map((name, i) => el("span", {}, el("i", { style: `background: ${color(i)}` }), name))),
    host, saveBar(() => `time ${STREAMS[STREAM.index]}`, rows, () => host.querySelector("svg")));
  whenSized(host, () => size, render);
  onStream(render);
}

function parameterCurves() {
  const known = DATA.groups.filter((group) => group.parameters.length);
  if (!known.length) return;
  const host = el("div");
  const kinds = { "stored after every task": "stored", "trained in every task": "trained" };
  let kind = "stored";

  function show() {
    const groups = shownGroups().filter((group) => group.parameters.length);
    const count = Math.max(0, ...groups.map((group) => group.parameters.length));
    const text = (value) => `${value.toFixed(3)} million`;
    host.replaceChildren(groups.length ? lineChart({
      label: `Parameters ${kind}, ${STREAMS[STREAM.index]}`, xlabel: "task", ylabel: "parameters, million",
      xs: Array.from({ length: count }, (_, i) => String(i + 1)), name: `parameters ${kind} ${STREAMS[STREAM.index]}`,
      series: groups.map((group) => ({ ...lineStyle(group), name: group.title,
        points: group.parameters.map((each, i) => ({ i, y: each[kind] / 1e6, text: text(each[kind] / 1e6) })) })),
    }) : el("p", { class: "soft" }, "No method that is switched on has counted its parameters."));
  }

  const chosen = select("Parameters", Object.keys(kinds), (i) => { kind = Object.values(kinds)[i]; show(); }, "parameters");
  kind = Object.values(kinds)[chosen.index];
  section("parameters", "Parameters", "Of the main network: how many are stored after a task, and the largest number that a training of the task changed.",
    el("div", { class: "controls" }, chosen), methodLegend(), host);
  SHOWN.listeners.push(show);
  onStream(show);
}
