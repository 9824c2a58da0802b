"""The stages of learning a task: what each of them reads, and what it does."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ancl.data import Samples
from ancl.data.samples import hold_out
from ancl.errors import MethodError
from ancl.inference import Infer
from ancl.memory import Exemplars, Memory
from ancl.methods.method import Auxiliary, Finish
from ancl.methods.task_history import ClassHistory
from ancl.networks import Architecture, Network, frozen
from ancl.regularizers import WeightRegularizer
from ancl.seeding import seeded
from ancl.stages.features import with_features
from ancl.stages.importance import write_importance
from ancl.stages.stage import (
    AuxiliaryTraining,
    ImageFormat,
    ImageStage,
    Inputs,
    MainLearning,
    Stage,
    StageContext,
    TaskImages,
    TaskStage,
    TrainingStage,
)
from ancl.stages.work import (
    ImageWork,
    MainWork,
    StageWork,
    TrainingWork,
)
from ancl.store.entry import StageResult
from ancl.training.afec import AlternatingTraining, following
from ancl.training.config import candidate_rate
from ancl.training.loop import Fit, Trainer, trained
from ancl.training.objective import Objective, PenaltyTerm
from ancl.training.view import View, correct_answers
from ancl.types import Output, prefixed, strip_prefix


@dataclass(frozen=True)
class Imprint:
    """What new rows of the head begin as: means of these images' features."""

    data: TaskImages
    images: ImageFormat


@dataclass(frozen=True, eq=False, kw_only=True)
class Grow(Stage):
    """The network of the last task with a block for this task's classes, or a fresh one."""

    name = "grow"
    architecture: Architecture
    history: ClassHistory
    imprint: Imprint | None = None

    def run(self, inputs: Inputs, context: StageContext) -> StageResult:
        """Build, load and add."""
        blocks = self.history.blocks
        with seeded(self.seed, self.task, "grow"):
            if "network" not in inputs:
                network = self.architecture.build(blocks)
            else:
                found = strip_prefix("network", inputs["network"].tensors)
                # New rows come after the old ones in the generator's stream.
                before = self.history.blocks_before
                network = self.architecture.restore(before, found, draw=True)
                if self.history.adds_classes:
                    network.add_task(blocks[-1])
            if self.imprint:
                self._imprint(self.imprint, network, inputs, context)
        return StageResult(prefixed("network", network.tensors()), {})

    def _imprint(
        self, imprint: Imprint, network: Network, inputs: Inputs, context: StageContext
    ) -> None:
        images = with_features(context.images, inputs)(imprint.data.key)
        train = hold_out(images.train, imprint.data.held, (self.seed, self.task))[0]
        network.to(context.device)
        features = imprint.images.answering(network, context.device)(train).features
        block = len(self.history.blocks) - 1
        network.head.imprint(block, features.to(context.device), train.y.to(context.device))


@dataclass(frozen=True, eq=False, kw_only=True)
class RateTrial(TrainingStage):
    """Fine-tuning at one rate: how well could the task be learned alone."""

    name = "rate trial"
    trial: int

    def run(self, inputs: Inputs, context: StageContext) -> StageResult:
        """Train, and measure on validation images."""
        work = TrainingWork(self, inputs, context)
        first = inputs["first rate"].meta["lr"] if "first rate" in inputs else None
        lr = candidate_rate(first, self.trial)
        network = work.auxiliary_network(self.frozen_blocks)
        fit = work.fit(
            network,
            Objective(self.task_loss, own_classes=True),
            [work.split.train],
            [work.split.val],
            replace(self.training, lr=lr),
            f"rate {self.trial}",
        )
        fit.view = work.alone
        log = context.drive(fit)
        judged = work.split.val if len(work.split.val) else work.split.train
        logits = work.answer(network)(judged).logits
        found = int(correct_answers(logits, judged.y, fit.view)) / len(judged)
        return StageResult({}, {"lr": lr, "accuracy": found, "log": log})


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
class TrainAuxiliary(TrainingStage):
    """The auxiliary network: the task loss alone, on this task alone, to its end."""

    name = "auxiliary"
    combined: bool = False

    def run(self, inputs: Inputs, context: StageContext) -> StageResult:
        """Train it."""
        work = TrainingWork(self, inputs, context)
        of = AuxiliaryTraining(self.training, self.watcher, self.frozen_blocks, self.combined)
        fit = work.auxiliary_fit(of, work.training, validated=True)
        return trained(fit, context.drive(fit))


@dataclass(frozen=True, eq=False, kw_only=True)
class AuxiliaryImportance(ImageStage):
    """The auxiliary network's importance, of this task alone."""

    name = "auxiliary importance"
    regularizer: WeightRegularizer

    def run(self, inputs: Inputs, context: StageContext) -> StageResult:
        """Estimate it."""
        work = ImageWork(self, inputs, context)
        watched = strip_prefix("watched", inputs["network"].tensors)
        found = work.estimate(self.regularizer, work.network(), watched, "auxiliary")
        return StageResult(write_importance(found), {})


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainMain(MainLearning):
    """The main network: task loss, and the terms of old and auxiliary network."""

    name = "main"

    def run(self, inputs: Inputs, context: StageContext) -> StageResult:
        """Train it, by the loop, in turns with an auxiliary one, or by the method's own trainer."""
        work = MainWork(self, inputs, context)
        trainer = self.trainer.make(work) if self.trainer else self._trainer(work)
        return trained(trainer, context.drive(trainer))

    def _trainer(self, work: MainWork) -> Trainer:
        network = work.main_network()
        self._check_weights_learn(network)
        objective = work.objective()
        train, val = work.training_parts()
        watcher = self.watcher() if self.watcher else None
        fit = work.fit(network, objective, train, val, work.training, "main", watcher)
        fit.outer = work.outer_step(network)
        self._warn_if_unstable(fit, work.say)
        self._say_what_is_left_out(work)
        if self.alternating is None or self.auxiliary is None:
            return fit
        return self._in_turns(work, fit, objective, self.alternating, self.auxiliary)

    def _in_turns(
        self,
        work: MainWork,
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
        terms = (self.old, self.auxiliary)
        on_weights = any(term and isinstance(term.regularizer, WeightRegularizer) for term in terms)
        if on_weights and not any(w.requires_grad for w in network.weights().values()):
            raise MethodError(
                "The method holds weights of the backbone, and none of them learns. Let some "
                "learn (requires_grad), or use a method without a term on weights."
            )

    def _warn_if_unstable(self, fit: Fit, say: Callable[[str], None]) -> None:
        """Warn if the penalty is too steep for plain steps."""
        training = fit.training
        reach, limit = training.lr * fit.steepest(), 2 * (1 + training.momentum)
        if training.penalty_step == "plain" and training.optimizer == "sgd" and reach > limit:
            say(
                f"Task {self.task + 1}: lr · max(λF + λ_aF_aux) = {reach:.3g} is more than "
                f"2 (1 + momentum) = {limit:.3g}, so plain steps on the penalty may diverge. "
                f"Lower λ, λ_a or training.lr, or use --set training.penalty_step=proximal."
            )

    def _say_what_is_left_out(self, work: MainWork) -> None:
        if self.images.versions and self.task == 1 and work.split.train.x.dtype != torch.uint8:
            work.say("Inputs are not uint8 images; left out: their twelve versions.")


@dataclass(frozen=True, eq=False, kw_only=True)
class RunFinish(MainLearning):
    """A method's own stage after the main training; it may read whatever that read.

    Args:
        part: What it does.
        memory: How exemplars are chosen.
        kept: The number of images per class that the memory keeps from now on.
    """

    part: Finish
    memory: Memory | None = None
    kept: tuple[int, int] = (0, 0)

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
        return self.part.run(_FinishWork(self, inputs, context))


class _FinishWork(MainWork):
    """What a finishing stage may use."""

    def __init__(self, stage: RunFinish, inputs: Inputs, context: StageContext) -> None:
        super().__init__(stage, inputs, context)
        self._memory, self.kept = stage.memory, stage.kept
        if stage.old and "lamb" in inputs:  # what the training ended with
            self.old = replace(stage.old, lamb=inputs["lamb"].meta["lambs"]["old"])

    def chosen(self, network: Network, count: int) -> Exemplars:
        """This number of exemplars of each of the task's classes, as the memory chooses them."""
        if self._memory is None:
            raise MethodError(
                "A stage after training chooses exemplars, and there is no memory. Give one with "
                "memory.per_class or memory.total."
            )
        return self.select(self._memory, network, count)


@dataclass(frozen=True, eq=False, kw_only=True)
class UpdateImportance(ImageStage):
    """The old network's importance from now on: this task's, merged with those before."""

    name = "importance"
    regularizer: WeightRegularizer

    def run(self, inputs: Inputs, context: StageContext) -> StageResult:
        """Estimate and merge it."""
        work = ImageWork(self, inputs, context)
        watched = strip_prefix("watched", inputs["main"].tensors)
        now = work.estimate(self.regularizer, work.network(), watched, "main")
        before = work.importance_of("before") if "before" in inputs else None
        return StageResult(write_importance(self.regularizer.merge(before, now)), {})


@dataclass(frozen=True, eq=False, kw_only=True)
class UpdateMemory(ImageStage):
    """The memory from now on: new classes' exemplars, and the best of the old ones.

    Those of a class that comes again are chosen among the kept ones and the new images.

    Args:
        memory: How exemplars are chosen.
        kept: The number of images per class to train on, and to validate on.
    """

    name = "memory"
    memory: Memory
    kept: tuple[int, int]

    def run(self, inputs: Inputs, context: StageContext) -> StageResult:
        """Cut the old ones, choose the new ones."""
        work, (count, held) = ImageWork(self, inputs, context), self.kept
        parts = [work.exemplars.truncated(count, held)] if work.exemplars else []
        parts = [part.of_classes(self.history.returning, inside=False) for part in parts]
        parts.append(work.select(self.memory, work.network(), count))
        if held:
            number = len(work.held)
            task, flags = torch.full((number,), self.task), torch.ones(number, dtype=torch.bool)
            parts.append(Exemplars(work.held, task, flags))
        return StageResult(prefixed("memory", Exemplars.joined(parts).tensors()), {})


@dataclass(frozen=True, eq=False, kw_only=True)
class Evaluate(TaskStage):
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
        work = StageWork(self, inputs, context)
        main = work.network()
        stored, network = main.stored(), frozen(main)
        scorer = self.infer.scorer(work.known(network))
        rows: dict[str, list[float | None]] = {"taw": [], "tag": [], "taw_val": [], "tag_val": []}
        columns = [classes for classes in self.history.tasks if classes.stop > classes.start]
        for test, val, classes in zip(self.test, self.val, columns, strict=True):
            own = _of_classes(work.images(val).val, classes)
            parts = ((work.images(test).test, ""), (own, "_val"))
            for samples, suffix in parts:
                aware, agnostic = accuracy(work, network, samples, scorer)
                rows[f"taw{suffix}"].append(aware)
                rows[f"tag{suffix}"].append(agnostic)
        return StageResult({}, {**rows, "stored": stored})


def _of_classes(samples: Samples, classes: slice) -> Samples:
    """Without the images of classes that came again."""
    own = (samples.y >= classes.start) & (samples.y < classes.stop)
    return samples if bool(own.all()) else samples.take(own.nonzero().squeeze(1))


def accuracy(
    work: StageWork, network: Network, samples: Samples, scorer: Callable[[Output], Tensor]
) -> tuple[float | None, float | None]:
    """The share of correct samples, with the task known and not known."""
    if not len(samples):
        return None, None
    scores = scorer(work.answer(network)(samples))
    found = [
        int(correct_answers(scores, samples.y, View(work.history.tasks, aware))) / len(samples)
        for aware in (True, False)
    ]
    return found[0], found[1]
