"""Results as plain text, the same on a terminal and in a file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ancl.errors import counted
from ancl.wording import LEGEND, SIGNS, duration, percent, table

if TYPE_CHECKING:
    from ancl.experiments.forecast import TimeEstimate
    from ancl.experiments.results import Finished, RunResult
    from ancl.experiments.run import Failure
    from ancl.learner.gate import GateResult
    from ancl.learner.learner import Learner
    from ancl.metrics import Metric

FAILED = 1
"""The exit code where some stage failed and the others finished."""
REFUSED = 3
"""The exit code where a condition does not hold."""


# -- results of runs -------------------------------------------------------------------------


def results_text(finished: Sequence[Finished], seconds: float) -> str:
    """Matrix and metrics of one run, or the metrics of several seeds."""
    results = [run.result for run in finished]
    parts = (
        [_matrix(results[0]), _metrics(results[0])]
        if len(results) == 1
        else [_seeds(results), _formulas()]
    )
    where = "\n".join(f"Results: {run.directory}" for run in finished)
    closing = [*parameters_text(results), time_text(results, seconds), where]
    return "\n\n".join([*parts, "\n".join(closing)])


def parameters_text(results: Sequence[RunResult]) -> list[str]:
    """How large the network is in the end, and how much of it learned in the last task."""
    counts = [each.parameters[-1] for each in results if each.parameters]
    if not counts:
        return []
    stored, trained, _ = (round(sum(each) / len(each)) for each in zip(*counts, strict=True))
    return [f"Parameters: {stored:,} stored after the last task, {trained:,} trained in it"]


def time_text(results: Sequence[RunResult], seconds: float) -> str:
    """How long it took, and how long if nothing had been shared, stored or done side by side."""
    spent = sum(sum(result.seconds.values()) for result in results)
    if spent <= seconds:
        return f"Time: {duration(seconds)}"
    whose = "each run" if len(results) > 1 else "the run"
    return f"Time: {duration(seconds)}; {whose} on its own: {duration(spent)} of work"


def unit(metric: Metric) -> str:
    """Percent for a share, points for a difference of shares."""
    return "points" if metric.unit.startswith("difference") else "%"


def _matrix(result: RunResult) -> str:
    """The accuracy matrix that counts in the scenario."""
    from ancl.metrics import learned_after

    matrix = result.counted
    rows = [
        [f"task {number}", *("" if math.isnan(v) else percent(v) for v in row)]
        for number, row in enumerate(matrix.tolist(), start=1)
    ]
    head = ["after", *(f"task {task + 1}" for task in learned_after(matrix))]
    how = "the task is known" if result.spec.task_aware else "the task is not known"
    title = f"Test accuracy in % on each task after each task ({how}):"
    return f"{title}\n{table(head, rows, 'l' + 'r' * len(head[1:]))}"


def _metrics(result: RunResult) -> str:
    """Each metric with its formula."""
    rows = [
        [metric.label, percent(result.metrics[name]), unit(metric), metric.formula]
        for name, metric in _shown().items()
    ]
    return f"{table(['metric', '', '', 'formula'], rows, 'lrll')}\n{LEGEND}"


def _seeds(results: Sequence[RunResult]) -> str:
    """One line per seed, then mean and standard error."""
    from ancl.experiments.results import estimates

    shown, means = _shown(), estimates(results)
    rows = [
        [str(result.spec.seed), *(percent(result.metrics[name]) for name in shown)]
        for result in results
    ]
    rows.append(["mean", *(percent(means[name].mean) for name in shown)])
    rows.append(["± error", *(percent(means[name].error) for name in shown)])
    head = ["seed", *(f"{metric.label} ({unit(metric)})" for metric in shown.values())]
    note = f"n = {len(results)} seeds; ± error is the standard error of the mean."
    return f"{table(head, rows, 'l' + 'r' * len(shown))}\n{note}"


def _formulas() -> str:
    rows = [[metric.label, metric.formula] for metric in _shown().values()]
    return f"{table(['metric', 'formula'], rows, 'll')}\n{LEGEND}"


def _shown() -> dict[str, Metric]:
    from ancl.metrics import METRICS

    return {name: metric for name, metric in METRICS.items() if metric.shown}


def failures_text(failures: Sequence[Failure]) -> str:
    """What failed, how many runs lack it, and why."""
    rows = [
        [failure.node.title, str(failure.runs), " ".join(failure.reason.split())]
        for failure in failures
    ]
    return "Failed, while the others finished:\n" + table(["stage", "runs", "why"], rows, "lrw")


# -- learners --------------------------------------------------------------------------------


def held_text(learner: Learner, changes: Sequence[tuple[Any, ...]]) -> str:
    """The accuracy on held images, old classes apart from new ones, and what it means."""
    held = learner.report()
    if held.accuracy is None:
        return "The accuracy was not measured: no images were held out of training."
    if not changes:
        return (
            f"Accuracy on {held.images} held images ({held.basis}): {percent(held.accuracy)} %. "
            f"Held images are never trained on."
        )
    rows = [
        [str(of), str(images), "" if before is None else percent(before), percent(after)]
        for of, images, before, after in changes
    ]
    return (
        "Accuracy on held images, the same images before and after. Nothing is learned from them, "
        "but the epoch\n(val, while it learns) or the classifier is chosen by them, so the "
        "accuracy may be slightly too good.\n--test measures on images of your own.\n"
        + table(["held images of", "images", "before %", "after %"], rows, "lrrr")
    )


def gate_text(measured: GateResult) -> str:
    """Test images before and after, class by class."""
    rows = [
        [
            str(recall.label),
            str(recall.images),
            "" if recall.before is None else percent(recall.before),
            percent(recall.after),
            "" if recall.before is None else _signed(recall.after - recall.before),
        ]
        for recall in measured.recalls
    ]
    if measured.known:
        before, after = measured.known
        shares = [percent(before), percent(after), _signed(after - before)]
        rows.append(["known before", str(measured.known_images), *shares])
    rows.append(["all", str(measured.images), "", percent(measured.accuracy), ""])
    return (
        "Accuracy on test images, which were never learned: the share that gets the right label "
        "among all classes.\n"
        + table(["class", "images", "before %", "after %", "points"], rows, "lrrrr")
    )


def _signed(difference: float) -> str:
    return f"{round(100 * difference, 1) + 0.0:+.1f}"


# -- dry runs --------------------------------------------------------------------------------


def preview_text(shown: Sequence[Mapping[str, Any]]) -> str:
    """What every seed has in common once, then the stages of each."""
    first = shown[0]
    same = all(preview["tasks"] == first["tasks"] for preview in shown)
    parts = [f"{first['method']} on {first['benchmark']}", *([_tasks(first)] if same else [])]
    parts += [_settings(first), *_expected_text(first)]
    parts += [*dict.fromkeys(note for preview in shown for note in preview["notes"])]
    for preview in shown:
        parts += [_stages(preview)] if same else [_tasks(preview), _stages(preview)]
    return "\n\n".join(parts)


def _expected_text(shown: Mapping[str, Any]) -> list[str]:
    """The numbers to expect, and what keeps the run from them."""
    from ancl.metrics import METRICS

    lines = []
    for number in shown["expected"]:
        source = f"the paper's table {number['table']}" if number["table"] else "measured with ancl"
        lines.append(
            f"Expected: {METRICS[number['metric']].label} {number['mean']:.2f} ± "
            f"{number['error']:.2f} % ({source}, n = {number['n']} seeds)"
        )
    if lines and shown["not_as_expected"]:
        lines.append("That number belongs to another protocol:")
        lines += [f"  {difference}" for difference in shown["not_as_expected"]]
    return ["\n".join(lines)] if lines else []


def cost_text(time: TimeEstimate, workers: int) -> str:
    """About how long the work takes."""
    beside = f" with {counted(workers, 'worker')}" if workers > 1 else ""
    return (
        f"Time: at most about {duration(time.seconds)} on this machine{beside}; the start takes "
        f"{duration(time.start)} of it. This is an estimate from a few timed steps; training that "
        f"ends early takes less."
    )


def _tasks(shown: Mapping[str, Any]) -> str:
    count = len(shown["tasks"])
    rows = [
        [
            f"{task['task'] + 1}/{count}",
            _classes(task),
            *(str(task[part]) for part in ("train", "val", "test")),
        ]
        for task in shown["tasks"]
    ]
    return table(["task", "classes", "train", "val", "test"], rows, "llrrr")


def _classes(task: Mapping[str, Any]) -> str:
    """The new classes of a task, and the known ones that come again."""
    new, again = (", ".join(map(str, task.get(key, ()))) for key in ("classes", "returning"))
    return "; ".join([*([new] if new else []), *([f"again: {again}"] if again else [])])


def _settings(shown: Mapping[str, Any]) -> str:
    """What was set first, then the defaults; the auxiliary network's only where it differs."""
    has_auxiliary = any("auxiliary" in stage["stage"] for stage in shown["stages"])
    rows = [
        [setting_name(key), shown_value(setting["value"]), setting["source"]]
        for key, setting in shown["settings"].items()
        if not key.startswith("auxiliary.") or (has_auxiliary and _differs(shown, key))
    ]
    rows.sort(key=lambda row: row[2] == "default")
    notes = []
    if has_auxiliary:
        notes.append("The auxiliary network's other settings are those of training.")
    if shown["settings"]["training.lr"]["value"] == "search":
        notes.append(_searched_rates())
    return "\n".join([table(["setting", "value", "from"], rows, "lll"), *notes])


def _differs(shown: Mapping[str, Any], key: str) -> bool:
    twin = key.replace("auxiliary.", "training.", 1)
    return bool(shown["settings"][key]["value"] != shown["settings"][twin]["value"])


def _stages(shown: Mapping[str, Any]) -> str:
    tasks, stages = len(shown["tasks"]), shown["stages"]
    rows = [
        [
            f"{stage['task'] + 1}/{tasks}",
            stage["stage"],
            stage["key"][:12],
            "stored" if stage["stored"] else _todo(stage["most_epochs"], stage["epochs_done"]),
        ]
        for stage in stages
    ]
    left = sum(not stage["stored"] for stage in stages)
    text = table(["task", "stage", "key", "state"], rows, "llll")
    return (
        f"Seed {shown['seed']}: {left} of {counted(len(stages), 'stage')} to do\n{text}\n"
        f"Results would go to {shown['directory']}"
    )


def _todo(epochs: int, done: int) -> str:
    if done:
        return f"{done} of at most {counted(epochs, 'epoch')} done"
    return f"to do, at most {counted(epochs, 'epoch')}" if epochs else "to do"


def setting_name(key: str) -> str:
    """A setting as it is written, with the symbol it stands for."""
    return f"{key} ({SIGNS[key]})" if key in SIGNS else key


def shown_value(value: Any) -> str:
    """A value as ``--set`` reads it."""
    return value if isinstance(value, str) else json.dumps(value)


def _searched_rates() -> str:
    from ancl.training.config import FIRST_RATES, LATER_RATES, TRIALS

    return (
        f"A searched rate is the one with which fine-tuning has the best validation accuracy: of "
        f"{FIRST_RATES} for the first task, of the {TRIALS} largest of {LATER_RATES} below it for "
        f"each later one."
    )
