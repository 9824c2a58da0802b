"""The stages of learning a task: what each of them reads, and what it does."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

import torch
from torch import Tensor

from ancl.data import Samples
from ancl.data.samples import hold_out
from ancl.errors import MethodError
from ancl.hashing import LATER
from ancl.inference import Infer
from ancl.losses import View, correct_answers
from ancl.memory import Exemplars, recorded
from ancl.methods.memory_update import memory_after, renewed_memory
from ancl.methods.method import Finish, MainTrainer
from ancl.methods.parts import (
    IMAGE_PARTS,
    AuxiliaryTraining,
    ImageFormat,
    Inputs,
    StageContext,
    TaskImages,
    read_base,
    with_features,
)
from ancl.methods.work import TaskWork
from ancl.networks import Network, frozen
from ancl.networks.adapters import clear_adapters
from ancl.networks.learnable import ALL, narrow
from ancl.regularizers import WeightRegularizer
from ancl.seeding import seeded
from ancl.stages.beside import warn_if_lost
from ancl.stages.stage import Stage
from ancl.state import (
    BASE,
    FIRST_RATE,
    LAMB,
    MEMORY,
    NETWORK,
    OLD,
    RENEWED,
    START,
    WATCHED,
    write_importance,
)
from ancl.store.entry import StageResult
from ancl.training.afec import AlternatingTraining, following
from ancl.training.config import candidate_rate
from ancl.training.evaluated import Evaluated
from ancl.training.loop import Fit, Trainer, trained
from ancl.training.objective import Auxiliary, Objective, PenaltyTerm
from ancl.types import Output, Params, prefixed, strip_prefix


@dataclass(frozen=True, eq=False, kw_only=True)
class MakeBase(Stage):
    """What no training of a network changes: stored once, for all that have the same."""

    name = BASE
    shared = True

    def run(self, inputs: Inputs, context: StageContext) -> StageResult:
        """Make a network, and keep that part alone."""
        with seeded(self.seed, self.task, "grow"):
            base = self.parts.architecture.make_base()
        return StageResult(prefixed(BASE, base), {})


@dataclass(frozen=True)
class Imprint:
    """What new rows of the head begin as: means of these images' features."""

    data: TaskImages
    images: ImageFormat


@dataclass(frozen=True, eq=False, kw_only=True)
class Grow(Stage):
    """The network of the last task with a block for this task's classes, or a fresh one."""

    name = "grow"
    imprint: Imprint | None = None

    def run(self, inputs: Inputs, context: StageContext) -> StageResult:
        """Build, load and add."""
        architecture, history = self.parts.architecture, self.parts.history
        base = read_base(inputs)
        with seeded(self.seed, self.task, "grow"):
            if NETWORK not in inputs:
                network = architecture.build(history.blocks, base)
            else:
                tensors = strip_prefix(NETWORK, inputs[NETWORK].tensors)
                # New rows come after the old ones in the generator's stream.
                network = architecture.restore(history.blocks_before, tensors, base, draw=True)
                if history.adds_block:
                    network.add_task(history.blocks[-1])
            if self.imprint:
                self._imprint(self.imprint, network, inputs, context)
        return StageResult(prefixed(NETWORK, network.tensors()), {})

    def _imprint(
        self, imprint: Imprint, network: Network, inputs: Inputs, context: StageContext
    ) -> None:
        images = with_features(context.images, inputs)(imprint.data.key)
        train = hold_out(images.train, imprint.data.held, (self.seed, self.task))[0]
        network.to(context.device)
        features = imprint.images.answering(network, context.device)(train).features
        block = len(self.parts.history.blocks) - 1
        network.head.imprint(block, features.to(context.device), train.y.to(context.device))


@dataclass(frozen=True, eq=False, kw_only=True)
class Features(Stage):
    """What a backbone that never learns makes of a task's images: computed once for all stages.

    Nothing else changes: stages get the same samples, with their features beside the images.

    Args:
        keys: The keys of the task's images: of those to learn from, and of those to test on.
        exact: Whether the features of an image do not depend on the images beside it.
    """

    name = "features"
    keys: tuple[str, str]
    exact: Annotated[bool, LATER] = False

    def run(self, inputs: Inputs, context: StageContext) -> StageResult:
        """The features of every image."""
        with seeded(0, "features"):  # a head of any numbers, since it is not asked
            whole = self.parts.architecture.restore([1], None, read_base(inputs), draw=True)
        network = frozen(whole).to(context.device)
        answer = self.parts.images.answering(network, context.device)
        exactly = self.parts.images.exactly(network, context.device)
        none = torch.zeros(0, network.head.feature_size)
        split = context.images(self.keys[0])
        parts = {part: getattr(split, part) for part in IMAGE_PARTS}
        features = {
            part: (exactly(samples) if self.exact else answer(samples).features)
            if len(samples)
            else none
            for part, samples in parts.items()
        }
        return StageResult(features, {"features of": list(self.keys)})


@dataclass(frozen=True, eq=False, kw_only=True)
class RateTrial(Stage):
    """Fine-tuning at one rate: how well could the task be learned alone."""

    name = "rate trial"
    trial: int

    @property
    def epochs(self) -> int:
        """The largest number of epochs."""
        return self.parts.training.epochs

    def run(self, inputs: Inputs, context: StageContext) -> StageResult:
        """Train, and measure on validation images."""
        work = self.work(inputs, context)
        first = inputs[FIRST_RATE].meta["lr"] if FIRST_RATE in inputs else None
        lr = candidate_rate(first, self.trial)
        network = work.auxiliary_network(
            AuxiliaryTraining(self.parts.training, frozen_blocks=self.parts.frozen_blocks)
        )
        fit = work.fit(
            network,
            Objective(work.task_loss, own_classes=True),
            [work.split.train],
            [work.split.val],
            replace(self.parts.training, lr=lr),
            f"rate {self.trial}",
        )
        fit.view = work.alone
        log = context.drive(fit)
        samples = work.split.val if len(work.split.val) else work.split.train
        logits = work.answer(network)(samples).logits
        correct = int(correct_answers(logits, samples.y, fit.view))
        return StageResult({}, {"lr": lr, "accuracy": correct / len(samples), "log": log})


@dataclass(frozen=True, eq=False, kw_only=True)
class Rate(Stage):
    """The rate of the best trial; the first of equals."""

    name = "rate"

    def run(self, inputs: Inputs, context: StageContext) -> StageResult:
        """Compare the trials."""
        trials = [inputs[name].meta for name in sorted(inputs)]
        best = max(trials, key=lambda trial: trial["accuracy"])
        tried = [[trial["lr"], trial["accuracy"]] for trial in trials]
        return StageResult({}, {"lr": best["lr"], "trials": tried})


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainAuxiliary(Stage):
    """The auxiliary network: the task loss alone, on this task alone, to its end.

    Args:
        combined: See ``AuxiliaryTraining``, also for the other two.
        trains: What learns of it.
        cleared: Whether its adapters begin at 0.
    """

    name = "auxiliary"
    combined: bool = False
    trains: Annotated[str, LATER] = ALL
    cleared: Annotated[bool, LATER] = False

    @property
    def epochs(self) -> int:
        """The largest number of epochs."""
        return self.parts.training.epochs

    def run(self, inputs: Inputs, context: StageContext) -> StageResult:
        """Train it."""
        work = self.work(inputs, context)
        parts, begins = self.parts, (self.trains, self.cleared)
        of = AuxiliaryTraining(
            parts.training, parts.watcher, parts.frozen_blocks, self.combined, *begins
        )
        fit = work.auxiliary_fit(of, work.training, validated=True)
        return trained(fit, context.drive(fit))


@dataclass(frozen=True, eq=False, kw_only=True)
class AuxiliaryImportance(Stage):
    """The auxiliary network's importance, of this task alone.

    Args:
        regularizer: The Ω.
        trains: What learned of it; see ``TrainAuxiliary``.
        cleared: Whether its adapters began at 0.
    """

    name = "auxiliary importance"
    regularizer: WeightRegularizer
    trains: Annotated[str, LATER] = ALL
    cleared: Annotated[bool, LATER] = False

    def run(self, inputs: Inputs, context: StageContext) -> StageResult:
        """Estimate it."""
        work = self.work(inputs, context)
        watched = strip_prefix(WATCHED, inputs[NETWORK].tensors)
        network, start = work.network(), work.network(START)
        narrow(network.backbone, self.trains)
        if self.cleared:
            clear_adapters(start.backbone)
        importance = work.estimate(self.regularizer, network, watched, "auxiliary", start=start)
        return StageResult(write_importance(importance), {})


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainMain(Stage):
    """The main network: task loss, and the terms of old and auxiliary network.

    Args:
        trainer: The method's own training, in place of the SGD loop.
        evaluate_every: After how many epochs it is tested on all tasks so far; 0 for never.
        tests: The keys of the test images of these tasks.
    """

    name = "main"
    trainer: MainTrainer | None = None
    evaluate_every: Annotated[int, LATER] = 0
    tests: Annotated[tuple[str, ...], LATER] = ()

    @property
    def epochs(self) -> int:
        """The largest number of epochs."""
        return self.parts.training.epochs

    def run(self, inputs: Inputs, context: StageContext) -> StageResult:
        """Train it, by the loop, in turns with an auxiliary one, or by the method's own trainer."""
        work = self.work(inputs, context)
        trainer = self.trainer.make(work) if self.trainer else self._trainer(work)
        if self.evaluate_every:
            trainer = Evaluated(trainer, self.evaluate_every, partial(self._measure, work))
        log = context.drive(trainer)
        pretrained = self.parts.architecture.pretrained is not None
        if pretrained and self.task == 0 and isinstance(trainer, Fit):
            warn_if_lost(work, trainer.network)
        return trained(trainer, log)

    def _measure(self, work: TaskWork, tensors: Params) -> dict[str, list[float | None]]:
        """Test accuracy on every task so far, by the network's own answers."""
        network = work.main_network()
        network.load(strip_prefix(NETWORK, tensors))
        twin = frozen(network)
        samples = [work.images(key).test for key in self.tests]
        shares = [accuracy(work, twin, part, lambda out: out.logits) for part in samples]
        return {kind: [share[i] for share in shares] for i, kind in enumerate(("taw", "tag"))}

    def _trainer(self, work: TaskWork) -> Trainer:
        network = work.main_network()
        self._check_weights_learn(network)
        objective = work.objective()
        train, val = work.training_parts()
        watcher = self.parts.watcher() if self.parts.watcher else None
        fit = work.fit(network, objective, train, val, work.training, "main", watcher)
        fit.outer = work.outer_step(network)
        fit.replay, fit.retrieve = work.replay_stream(), self.parts.retrieve
        self._warn_if_unstable(fit, work.say)
        self._say_what_is_left_out(work)
        alternating, auxiliary = self.parts.alternating, self.parts.auxiliary
        if alternating is None or auxiliary is None:
            return fit
        return self._in_turns(work, fit, objective, alternating, auxiliary)

    def _in_turns(
        self,
        work: TaskWork,
        fit: Fit,
        objective: Objective,
        of: AuxiliaryTraining,
        auxiliary: Auxiliary,
    ) -> Trainer:
        """The main network with an auxiliary one an epoch ahead of it."""
        other = work.auxiliary_fit(of, following(of.training, fit.training), validated=False)
        omega, network = auxiliary.regularizer, other.network
        assert isinstance(omega, WeightRegularizer)

        def renew(epoch: int) -> PenaltyTerm:
            importance = work.estimate(omega, network, {}, "auxiliary", epoch)
            return work.auxiliary_term(auxiliary, network, importance)

        lamb_a = auxiliary.lamb_a
        assert isinstance(lamb_a, float | int)
        return AlternatingTraining(fit, other, objective, renew, lamb_a)

    def _check_weights_learn(self, network: Network) -> None:
        """Refuse a term on weights if none is trained; a plan knows it only of a user's module."""
        terms = (self.parts.old, self.parts.auxiliary)
        on_weights = any(term and isinstance(term.regularizer, WeightRegularizer) for term in terms)
        if on_weights and not any(w.requires_grad for w in network.weights().values()):
            raise MethodError(
                "The method holds weights of the backbone, and none of them learns. Let some "
                "learn (requires_grad), or use a method without a term on weights."
            )

    def _warn_if_unstable(self, fit: Fit, say: Callable[[str], None]) -> None:
        """Warn if the penalty is too steep for plain steps."""
        training = fit.training
        reach = training.lr * training.backbone_factor * fit.steepest()
        limit = 2 * (1 + training.momentum)
        if training.penalty_step == "plain" and training.optimizer == "sgd" and reach > limit:
            say(
                f"Task {self.task + 1}: lr · max(λF + λ_aF_aux) = {reach:.3g} is more than "
                f"2 (1 + momentum) = {limit:.3g}, so plain steps on the penalty may diverge. "
                f"Lower λ, λ_a or training.lr, or use --set training.penalty_step=proximal."
            )

    def _say_what_is_left_out(self, work: TaskWork) -> None:
        if (
            self.parts.images.versions
            and self.task == 1
            and work.split.train.x.dtype != torch.uint8
        ):
            work.say("Inputs are not uint8 images; left out: their twelve versions.")


@dataclass(frozen=True, eq=False, kw_only=True)
class RunFinish(Stage):
    """A method's own stage after the main training; it may read whatever that read.

    Args:
        part: What it does.
        trainer: The method's own training, if that came before.
    """

    part: Finish
    trainer: MainTrainer | None = None

    @property
    def name(self) -> str:
        """The part's own name."""
        return self.part.name

    @property
    def epochs(self) -> int:
        """The part's epochs, where it has any."""
        return int(getattr(self.part, "epochs", 0))

    def run(self, inputs: Inputs, context: StageContext) -> StageResult:
        """Run the part."""
        lamb = inputs[LAMB].meta["lambs"][OLD] if LAMB in inputs else None
        return self.part.run(self.work(inputs, context, lamb))


@dataclass(frozen=True, eq=False, kw_only=True)
class UpdateImportance(Stage):
    """The old network's importance from now on: this task's, merged with those before."""

    name = "importance"
    regularizer: WeightRegularizer

    def run(self, inputs: Inputs, context: StageContext) -> StageResult:
        """Estimate and merge it."""
        work = self.work(inputs, context)
        watched = strip_prefix(WATCHED, inputs["main"].tensors)
        now = work.estimate(self.regularizer, work.network(), watched, "main")
        before = work.importance_of("before") if "before" in inputs else None
        return StageResult(write_importance(self.regularizer.merge(before, now)), {})


@dataclass(frozen=True, eq=False, kw_only=True)
class UpdateMemory(Stage):
    """The memory from now on: new classes' exemplars, and the best of the old ones.

    Those of a class that comes again are chosen among the kept ones and the new images.
    """

    name = MEMORY

    def run(self, inputs: Inputs, context: StageContext) -> StageResult:
        """Cut the old ones, choose the new ones."""
        work = self.work(inputs, context)
        network = work.network()
        renewed = strip_prefix(RENEWED, inputs["main"].tensors) if "main" in inputs else {}
        if renewed:
            return StageResult(prefixed(MEMORY, renewed_memory(work, renewed).tensors()), {})
        old, *new = memory_after(work, network)
        answer, records = work.answer(network), self.parts.records
        parts = [old, *(recorded(part, records, answer) for part in new)]
        return StageResult(prefixed(MEMORY, Exemplars.joined(parts).tensors()), {})


@dataclass(frozen=True, eq=False, kw_only=True)
class Evaluate(Stage):
    """Accuracy on every task so far that brought classes, with the task known (taw) and not (tag).

    Args:
        infer: How a class is chosen.
        test: The keys of these tasks' test images.
        val: The keys of their training and validation images.
    """

    name = "evaluate"
    infer: Infer
    test: tuple[str, ...]
    val: tuple[str, ...]

    def run(self, inputs: Inputs, context: StageContext) -> StageResult:
        """Measure."""
        work = self.work(inputs, context)
        main = work.network()
        stored, network = main.stored(), frozen(main)
        scorer = self.infer.scorer(work.inference_inputs(network))
        rows: dict[str, list[float | None]] = {"taw": [], "tag": [], "taw_val": [], "tag_val": []}
        columns = [classes for classes in work.history.tasks if classes.stop > classes.start]
        for test, val, classes in zip(self.test, self.val, columns, strict=True):
            of_classes = _of_classes(work.images(val).val, classes)
            parts = ((work.images(test).test, ""), (of_classes, "_val"))
            for samples, suffix in parts:
                aware, agnostic = accuracy(work, network, samples, scorer)
                rows[f"taw{suffix}"].append(aware)
                rows[f"tag{suffix}"].append(agnostic)
        return StageResult({}, {**rows, "stored": stored})


def _of_classes(samples: Samples, classes: slice) -> Samples:
    """Without the images of classes that came again."""
    wanted = (samples.y >= classes.start) & (samples.y < classes.stop)
    return samples if bool(wanted.all()) else samples.take(wanted.nonzero().squeeze(1))


def accuracy(
    work: TaskWork, network: Network, samples: Samples, scorer: Callable[[Output], Tensor]
) -> tuple[float | None, float | None]:
    """The share of correct samples, with the task known and not known."""
    if not len(samples):
        return None, None
    scores = scorer(work.answer(network)(samples))
    shares = [
        int(correct_answers(scores, samples.y, View(work.history.tasks, aware))) / len(samples)
        for aware in (True, False)
    ]
    return shares[0], shares[1]
