"""ANCL and AFEC as plug-ins of an Avalanche strategy; nothing of Avalanche is imported.

A plug-in adds λ Ω(θ; old network) and λ_a Ω(θ; auxiliary network) to the strategy's loss, from
the second experience on. Criterion, memory and model stay the strategy's own.
"""

from dataclasses import replace
from typing import Any, ClassVar, Literal

from torch import Tensor

from ancl.errors import MethodError, ScenarioError, SpecError
from ancl.integrations.avalanche_model import (
    AuxiliaryNetwork,
    Experience,
    Learning,
    Strategy,
    check_model,
    learning_of,
    listen,
)
from ancl.losses import CrossEntropy
from ancl.methods.method import Method
from ancl.methods.registry import MethodRef
from ancl.methods.variants import with_afec, with_ancl
from ancl.regularizers import Watcher, WeightRegularizer
from ancl.training.lambda_rules import Auto, Balance, weight_at
from ancl.training.objective import Auxiliary, Objective, PenaltyTerm
from ancl.training.quadratic import Quadratic
from ancl.types import Anchor, Output, Params, Step

__all__ = ["AFECPlugin", "ANCLPlugin"]

_POSSIBLE = "lwf, icarl, lfl, ewc, mas, si or rwalk"


class _Plugin:
    """Two anchors and their terms, by Avalanche's callbacks."""

    supports_distributed = False
    _variant: ClassVar[Literal["a", "afec"]]

    def __init__(
        self,
        method: str | Method = "lwf",
        *,
        head: str = "classifier",
        epochs: int | None = None,
        **settings: Any,
    ) -> None:
        """Check the method, before any training.

        Args:
            method: A method's name, or an ``ancl.Method``.
            head: The name of the model's classifier. Features are what enters it, and weights
                are those outside it. An Ω on logits reads neither.
            epochs: Epochs of the auxiliary network: in all for ANCL (the strategy's), before each
                of the strategy's for AFEC (1).
            settings: The method's own: ``lamb``, ``lamb_a``, ``temperature``, …

        Raises:
            MethodError: The method is more than its Ω, or its Ω reads what a model does not give.
        """
        if epochs is not None and epochs < 1:
            raise SpecError(f"epochs is {epochs}. Give 1 or more, or leave it out.")
        self.method, self._auxiliary = _made(self._variant, method, settings)
        old = self.method.old
        if old and isinstance(old.lamb, Auto):
            raise MethodError(
                "λ cannot be auto in a plugin: it is found by the force of the task loss, which "
                "here belongs to the strategy. Give a number, such as lamb=1."
            )
        reads = {omega.reads for omega in self.method.omegas}
        self._epochs = epochs
        # A balance measures the force of an Ω on logits at the features.
        balanced = reads == {"logits"} and isinstance(self._auxiliary.lamb_a, Balance)
        self._reads_features = "features" in reads or balanced
        self._head = head if reads != {"logits"} or balanced else None
        self._order: tuple[int, ...] = ()
        self._tasks: tuple[slice, ...] = ()
        self._old: Anchor | None = None
        self._close()

    def _close(self) -> None:
        """Between experiences only the old network is kept."""
        self._learning: Learning | None = None
        self._start: Params = {}
        self._watcher: Watcher | None = None
        self._trained: AuxiliaryNetwork | None = None
        self._objective = Objective(self.method.task_loss, task_weight=0)
        self._quadratic: Quadratic | None = None
        self._entered: list[Tensor] = []
        self._hook: Any = None

    # -- Avalanche's callbacks ---------------------------------------------------------------

    def before_training_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Make the terms of an experience; ANCL's auxiliary network is trained here."""
        check_model(strategy.model, self._head)
        self._take_classes(strategy.experience)
        learning = self._learning = learning_of(strategy, self._order, self._tasks, self._head)
        self._start = learning.copied_weights()
        self._watcher = self.method.watcher() if self.method.watcher else None
        auxiliary = self._auxiliary
        if len(self._tasks) > 1 and self._has_auxiliary_term():
            self._trained = AuxiliaryNetwork(auxiliary, self.method.task_loss, learning, strategy)
            if auxiliary.renewed == "task":
                self._trained.learn(self._epochs or strategy.train_epochs)
        self._renew(learning)

    def before_training_epoch(self, strategy: Strategy, **kwargs: Any) -> None:
        """AFEC's auxiliary network goes an epoch ahead, and its term is made anew."""
        if self._learning and self._trained and self._auxiliary.renewed == "epoch":
            self._trained.follow(strategy.optimizer)
            self._trained.learn(self._epochs or 1)
            self._renew(self._learning)

    def before_forward(self, strategy: Strategy, **kwargs: Any) -> None:
        """Listen to what enters the classifier, where an Ω reads features."""
        if self._reads_features and self._head and self._objective.terms:
            self._entered, self._hook = listen(strategy.model, self._head)

    def after_forward(self, strategy: Strategy, **kwargs: Any) -> None:
        """Stop listening: a copy of the model must not take the hook with it."""
        if self._hook:
            self._hook.remove()
            self._hook = None

    def before_backward(self, strategy: Strategy, **kwargs: Any) -> None:
        """Add the terms on answers to the strategy's loss."""
        if not self._learning or not self._objective.terms:
            return
        logits = strategy.mb_output[:, self._learning.columns]
        features = self._entered[-1].flatten(1) if self._reads_features else logits[:, :0]
        y = self._learning.positions(strategy.mb_y)
        step = Step(strategy.mb_x, y, Output(logits, features), {}, self._tasks)
        for term in self._objective.answers(step).values():
            strategy.loss = strategy.loss + term

    def after_backward(self, strategy: Strategy, **kwargs: Any) -> None:
        """Add the gradient of terms on weights; SI and R-Walk look at the one without it."""
        if self._watcher and self._learning:
            self._watcher.before(self._learning.weights())
        if self._quadratic:
            self._quadratic.add_gradient()

    def after_update(self, strategy: Strategy, **kwargs: Any) -> None:
        """Let SI and R-Walk see the step."""
        if self._watcher and self._learning:
            self._watcher.after(self._learning.weights())

    def after_training_exp(self, strategy: Strategy, **kwargs: Any) -> None:
        """Keep the network as it is now: the old one of the next experience."""
        learning, old = self._learning, self.method.old
        assert learning is not None, "Avalanche calls before_training_exp first"
        if old and old.lamb != 0:
            omega = old.regularizer
            importance = learning.importance(omega, self._start, self._watcher, "main", 0)
            if isinstance(omega, WeightRegularizer):
                importance = omega.merge(self._old.importance if self._old else None, importance)
            self._old = learning.anchor(omega, slice(0, len(self._order)), importance)
        self._close()

    # -- an experience -----------------------------------------------------------------------

    def _take_classes(self, experience: Experience) -> None:
        """Put new classes after all earlier ones: a task is a slice of this order."""
        given = tuple(sorted({int(label) for label in experience.classes_in_this_experience}))
        known = [label for label in given if label in self._order]
        start = len(self._order)
        if not known:
            self._order += given
        elif tuple(sorted(self._order)) == given:
            start = 0
        else:
            raise ScenarioError(
                f"The experience has the classes {list(given)}, and {known} came before. Give "
                f"experiences of new classes alone, or of the same classes every time."
            )
        self._tasks = (*self._tasks, slice(start, len(self._order)))

    def _has_auxiliary_term(self) -> bool:
        """Whether λ_a is not 0; a balance with no pull to the old network is."""
        lamb_a = self._auxiliary.lamb_a
        if isinstance(lamb_a, Balance):
            return self._old is not None and lamb_a.rho > 0
        return lamb_a != 0

    def _renew(self, learning: "Learning") -> None:
        """The terms with the anchors as they are now; one whose λ is 0 is left out."""
        terms = []
        if self._old and self.method.old:
            lamb = weight_at(self.method.old.lamb, *learning.history.counts)
            terms.append(PenaltyTerm("old", lamb, self.method.old.regularizer, self._old))
        if self._trained:
            terms.append(self._trained.term())
        self._objective = replace(self._objective, terms=[term for term in terms if term.lamb])
        self._quadratic = self._objective.quadratic(learning.weights())


class ANCLPlugin(_Plugin):
    """A method with ANCL: its Ω holds to an auxiliary network too, trained before the main one.

    ``ANCLPlugin("lwf", lamb=1.0, lamb_a=1.0)`` is A-LwF; with ``lamb_a=0`` it is LwF.
    """

    _variant = "a"


class AFECPlugin(_Plugin):
    """A method with AFEC: EWC's Ω holds to an auxiliary network one epoch ahead.

    ``AFECPlugin("finetune", lamb_a=100.0)`` is AFEC alone.
    """

    _variant = "afec"


# -- methods ---------------------------------------------------------------------------------


def _made(
    variant: Literal["a", "afec"], method: str | Method, settings: dict[str, Any]
) -> tuple[Method, Auxiliary]:
    """The method in its variant, and its auxiliary network's part."""
    if isinstance(method, Method):
        made = method
        if method.auxiliary is None:
            made = (with_ancl if variant == "a" else with_afec)(method, **settings)
        elif settings:
            raise SpecError(
                f"{method.name} has its settings already, and {', '.join(settings)} came too. "
                f"Leave them out, or give a method's name."
            )
    else:
        ref = MethodRef(method)
        if ref.variant not in ("", variant):
            right = "AFECPlugin" if ref.variant == "afec" else "ANCLPlugin"
            raise MethodError(f"{method} is for {right}. Use that, or give {ref.base}.")
        ref = MethodRef(f"{variant}-{ref.base}")
        made = ref.make(ref.check(settings))
    if reasons := _reasons(made):
        raise MethodError(
            f"{made.name} cannot be a plug-in, which adds an Ω and nothing else: "
            f"{'; '.join(reasons)}. Use {_POSSIBLE}, or an ancl.Method of your own Ω."
        )
    assert made.auxiliary is not None, "both variants have one"
    return made, made.auxiliary


def _reasons(method: Method) -> list[str]:
    """What a method needs besides an Ω on logits, features or weights."""
    auxiliary = method.auxiliary
    stages = ", ".join(part.name for part in method.finish)
    extras = ", ".join(extra.name for extra in method.extras)
    reasons = {
        "it reads feature maps of every stage": any(o.reads == "maps" for o in method.omegas),
        f"it has stages after training ({stages})": stages,
        f"its loss has more terms ({extras})": extras,
        f"it has a classifier of its own ({method.head})": method.head != "linear",
        "it has a task loss of its own": not isinstance(method.task_loss, CrossEntropy),
        "it weighs the task loss": method.task_weight != 1,
        "it changes gradients or weights at every step": method.constrain,
        "it changes the images": method.enlarge,
        "it has a training of its own": method.trainer or method.start == "fresh",
        "its network grows": method.growth,
        "it learns from all images so far": method.data == "all",
        "it learns from replay batches": method.replays,
        f"it trains {method.trains} alone": method.trains in ("head", "new rows"),
        "auxiliary_data=combined needs the strategy's memory": auxiliary
        and auxiliary.data == "combined",
        "its auxiliary network is carried from task to task": auxiliary
        and auxiliary.start == "carried",
        "a part alone of its auxiliary network learns, or its adapters begin at zero": auxiliary
        and (auxiliary.trains != "all" or auxiliary.start == "zero"),
    }
    return [reason for reason, holds in reasons.items() if holds]
