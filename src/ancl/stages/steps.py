"""What each stage does: a pure function of its inputs, the task's images and the settings."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from ancl.data import Samples
from ancl.errors import MethodError
from ancl.memory import Exemplars
from ancl.methods.method import Auxiliary, Rule, weight_at
from ancl.networks import Network, frozen
from ancl.regularizers import WeightRegularizer
from ancl.seeding import seeded
from ancl.stages.context import Drive, Inputs, Job, Workbench, trained
from ancl.stages.plan import Stage, block_sizes, brings_classes, class_counts, kept_counts
from ancl.store.entry import StageResult
from ancl.training.afec import AlternatingTraining, following
from ancl.training.config import candidate_rate
from ancl.training.loop import Fit, View, correct_answers
from ancl.training.objective import Objective, PenaltyTerm
from ancl.types import Importance, Output, Params, prefixed, strip_prefix


def perform(stage: Stage, job: Job, inputs: Inputs, drive: Drive) -> StageResult:
    """Compute one stage."""
    bench = Workbench(stage, job, inputs)
    plain = {
        "grow": grow,
        "rate": rate,
        "auxiliary importance": auxiliary_importance,
        "importance": importance,
        "memory": memory,
        "evaluate": evaluate,
    }
    if stage.name in plain:
        return plain[stage.name](bench)
    if stage.name == "rate trial":
        return rate_trial(bench, stage.settings["trial"], drive)
    driven = {"auxiliary": train_auxiliary, "main": train_main}
    if stage.name in driven:
        return driven[stage.name](bench, drive)
    part = next(part for part in bench.method.finish if part.name == stage.name)
    return part.run(bench, drive)


def grow(bench: Workbench) -> StageResult:
    """The network of the last task with a block for this task's classes, or a fresh one."""
    sizes = block_sizes(bench.tasks)
    build = bench.setting.architecture.build
    with seeded(bench.seed, bench.index, "grow"):
        if "network" not in bench.inputs:
            network = build(sizes)
        else:
            network = build(block_sizes(bench.tasks[:-1]))
            network.load(strip_prefix("network", bench.inputs["network"].tensors))
            if brings_classes(bench.task):
                network.head.grow(sizes[-1])
        if bench.method.imprint and bench.index and brings_classes(bench.task):
            imprint(bench, network, len(sizes) - 1)
    return StageResult(prefixed("network", network.tensors()), {})


def imprint(bench: Workbench, network: Network, block: int) -> None:
    """Begin a block's rows with the old network's features of its classes."""
    train = bench.split.train
    network.to(bench.setting.device)
    features = bench.answer(network)(train).features.to(bench.setting.device)
    network.head.imprint(block, features, train.y.to(bench.setting.device))


def rate_trial(bench: Workbench, trial: int, drive: Drive) -> StageResult:
    """Fine-tuning at one rate: how well could the task be learned alone."""
    first = bench.inputs["first rate"].meta["lr"] if "first rate" in bench.inputs else None
    training = bench.setting.training.at(bench.index)
    lr = candidate_rate(first, trial)
    network = bench.auxiliary_network()
    fit = bench.fit(
        network,
        Objective(bench.method.task_loss, own_classes=True),
        [bench.split.train],
        [bench.split.val],
        replace(training, lr=lr),
        f"rate {trial}",
    )
    fit.view = View(bench.view.tasks, task_aware=True)
    log = drive(fit)
    correct = accuracy(bench, network, bench.split.val, lambda output: output.logits)[0]
    return StageResult({}, {"lr": lr, "accuracy": correct, "log": log})


def rate(bench: Workbench) -> StageResult:
    """The rate of the best trial; the first of equals."""
    trials = [bench.inputs[name].meta for name in sorted(bench.inputs) if name != "first rate"]
    best = max(trials, key=lambda trial: trial["accuracy"])
    return StageResult({}, {"lr": best["lr"], "trials": [[t["lr"], t["accuracy"]] for t in trials]})


def train_auxiliary(bench: Workbench, drive: Drive) -> StageResult:
    """The auxiliary network: the task loss alone, on this task alone, to its end."""
    training = bench.rate(bench.setting.auxiliary)
    fit = bench.auxiliary_fit(bench.auxiliary_network(), training, validated=True)
    return trained(fit, drive(fit))


def auxiliary_importance(bench: Workbench) -> StageResult:
    """The auxiliary network's importance, fresh: nothing of earlier tasks is in it."""
    assert bench.method.auxiliary is not None
    watched = strip_prefix("watched", bench.inputs["network"].tensors)
    omega = bench.method.auxiliary.regularizer
    return StageResult(flat(bench.estimate(omega, bench.network(), watched, "auxiliary")), {})


def train_main(bench: Workbench, drive: Drive) -> StageResult:
    """The main network: task loss, and the pulls to old and auxiliary network."""
    objective = bench.objective()
    train, val = bench.training_parts()
    training = bench.rate(bench.setting.training)
    fit = bench.fit(
        bench.main_network(), objective, train, val, training, "main", bench.method.watcher()
    )
    check_weights_learn(bench, fit)
    warn_if_unstable(bench, fit)
    if bench.index == 1:
        say_what_is_left_out(bench)
        warn_of_strange_targets(bench)
    auxiliary = bench.method.auxiliary
    if not (auxiliary and auxiliary.renewed == "epoch" and bench.index):
        return trained(fit, drive(fit))
    return train_behind(bench, fit, objective, auxiliary, drive)


def train_behind(
    bench: Workbench, fit: Fit, objective: Objective, auxiliary: Auxiliary, drive: Drive
) -> StageResult:
    """The main network with an auxiliary one an epoch ahead of it."""
    network = bench.auxiliary_network()
    training = following(bench.setting.auxiliary.at(bench.index), fit.training)
    ahead = bench.auxiliary_fit(network, training, validated=False)

    def renew(epoch: int) -> PenaltyTerm:
        importance = bench.estimate(auxiliary.regularizer, network, {}, "auxiliary", epoch)
        return bench.auxiliary_pull(auxiliary, network, importance)

    log = drive(AlternatingTraining(fit, ahead, objective, renew))
    # A training found finished has no anchor yet: its λ_a is not read off the last objective.
    lamb_a = weight_at(auxiliary.lamb_a, *class_counts(bench.task))
    entry = trained(fit, log, auxiliary=lamb_a)
    return StageResult(entry.tensors | prefixed("carried", network.tensors()), entry.meta)


def importance(bench: Workbench) -> StageResult:
    """The old network's importance from now on: this task's, merged with those before."""
    assert bench.method.old is not None
    omega = bench.method.old.regularizer
    assert isinstance(omega, WeightRegularizer)
    watched = strip_prefix("watched", bench.inputs["main"].tensors)
    now = bench.estimate(omega, bench.network(), watched, "main")
    before = bench.importance_of("before") if "before" in bench.inputs else None
    return StageResult(flat(omega.merge(before, now)), {})


def memory(bench: Workbench) -> StageResult:
    """The memory from now on: new classes' exemplars, and the best of the old ones."""
    quota, held = kept_counts(bench.method, bench.tasks, bench.setting)
    parts = [bench.exemplars.truncated(quota, held)] if bench.exemplars else []
    parts.append(bench.chosen(bench.network(), quota))
    if held:
        count = len(bench.held)
        parts.append(
            Exemplars(
                bench.held,
                torch.full((count,), bench.index),
                torch.ones(count, dtype=torch.bool),
            )
        )
    return StageResult(prefixed("memory", Exemplars.joined(parts).tensors()), {})


def evaluate(bench: Workbench) -> StageResult:
    """Accuracy on every task so far, with the task told (taw) and not (tag)."""
    network = frozen(bench.network())
    scorer = bench.method.infer.scorer(bench.known(network))
    rows: dict[str, list[float | None]] = {"taw": [], "tag": [], "taw_val": [], "tag_val": []}
    for task in bench.tasks:
        split = task.load()
        for samples, suffix in ((split.test, ""), (split.val, "_val")):
            aware, agnostic = accuracy(bench, network, samples, scorer)
            rows[f"taw{suffix}"].append(aware)
            rows[f"tag{suffix}"].append(agnostic)
    return StageResult({}, rows)


def accuracy(
    bench: Workbench, network: Network, samples: Samples, scorer: Callable[[Output], Tensor]
) -> tuple[float | None, float | None]:
    """The share of samples that get their class, with the task told and not told."""
    if not len(samples):
        return None, None
    scores = scorer(bench.answer(network)(samples))
    found = [
        int(correct_answers(scores, samples.y, View(bench.view.tasks, told))) / len(samples)
        for told in (True, False)
    ]
    return found[0], found[1]


def check_weights_learn(bench: Workbench, fit: Fit) -> None:
    """Refuse a term on weights where no weight of the backbone learns: it would hold nothing."""
    terms = (bench.method.old, bench.method.auxiliary)
    on_weights = any(term and isinstance(term.regularizer, WeightRegularizer) for term in terms)
    if on_weights and not fit.weights:
        raise MethodError(
            f"{bench.method.name} holds weights of the backbone, and none of them learns. Let "
            f"some learn (requires_grad), or use a method without a term on weights."
        )


def warn_if_unstable(bench: Workbench, fit: Fit) -> None:
    """Say so where the penalty is steeper than plain steps can follow."""
    training = fit.training
    reach, limit = training.lr * fit.steepest(), 2 * (1 + training.momentum)
    if training.penalty_step == "plain" and training.optimizer == "sgd" and reach > limit:
        bench.say(
            f"Task {bench.index}: lr · max(λF + λ_aF_aux) = {reach:.3g} is more than "
            f"2 (1 + momentum) = {limit:.3g}, so plain steps on the penalty may diverge. "
            f"Lower λ, λ_a or training.lr, or use --set training.penalty_step=proximal."
        )


def say_what_is_left_out(bench: Workbench) -> None:
    """Say so where a method has parts for images, or for new classes, and there are none."""
    method = bench.method
    if method.enlarge and bench.split.train.x.dtype != torch.uint8:
        bench.say(f"{method.name}: inputs are not uint8 images; left out: their twelve versions.")
    if brings_classes(bench.task):
        return
    left = [f"the {extra.name} term" for extra in method.extras if extra.new_classes]
    left += ["imprinting"] if method.imprint else []
    left += ["the factor on λ"] if method.old and isinstance(method.old.lamb, Rule) else []
    if left:
        bench.say(f"{method.name}: tasks bring no new classes; left out: {', '.join(left)}.")


def warn_of_strange_targets(bench: Workbench) -> None:
    """Say so where exemplars are held to a network that was never shown their classes."""
    auxiliary = bench.method.auxiliary
    strange = auxiliary and auxiliary.classes == "all" and auxiliary.data == "current"
    if strange and bench.exemplars and brings_classes(bench.task):
        bench.say(
            f"Warning: {bench.method.name} holds exemplars of old classes to an auxiliary network "
            f"that learned from this task's images alone. Use auxiliary_classes=new, or "
            f"auxiliary_data=combined."
        )


def flat(importance: Importance) -> Params:
    """Importance as named tensors."""
    return {
        f"importance/{kind}/{name}": tensor
        for kind, params in importance.items()
        for name, tensor in params.items()
    }
