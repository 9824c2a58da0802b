"""Code of the user's own, which is given again: what a directory names is never executed."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from ancl.data import Augment, find_augmentation
from ancl.errors import MethodError, SpecError
from ancl.hashing import describe, digest
from ancl.methods.method import Method
from ancl.methods.registry import MethodRef
from ancl.networks import network_maker
from ancl.outside import is_outside
from ancl.recipe.recipe import Layer, Recipe, dotted
from ancl.recipe.resolve import resolve_recipe
from ancl.stages.final_state import FinalState, augment_digest


@dataclass(frozen=True)
class SuppliedCode:
    """Parts that a caller gives again: what a directory names is never executed.

    Args:
        path: The directory that is read.
        call: The call that they are given to, for messages.
        method: The method, or where its code lies.
        network: The network, or where its code lies.
        augment: The augmentation, or where its code lies.
        accept_changed: Whether they may differ from those that were trained with.
    """

    path: Path
    call: str
    method: str | Method | None = None
    network: str | nn.Module | None = None
    augment: Augment | None = None
    accept_changed: bool = False

    def method_or(self, saved: str | None) -> str | Method:
        """The method given, or one of ours by its saved name.

        Raises:
            MethodError: Both are ours, and not the same.
        """
        if self.method is None:
            return self._ours("method", saved)
        names = [part for part in (self.method, saved) if isinstance(part, str)]
        if len(names) == 2 and not any(map(is_outside, names)) and not self.accept_changed:
            given, before = (MethodRef(name).name for name in names)
            if given != before:
                raise MethodError(
                    f"The method given to {self.call} is not the one that {self.path} was trained "
                    f"with ({before}). Leave it out, or begin a new learner in another directory."
                )
        return self.method

    def network_or(self, saved: str | None) -> str | nn.Module:
        """The network given, or one of ours by its saved name."""
        return self.network if self.network is not None else self._ours("network", saved)

    def augment_or(self, saved: str | None) -> Augment:
        """The augmentation given, or one of ours by its saved name."""
        return self.augment if self.augment is not None else self._ours("augment", saved)

    def _ours(self, part: str, saved: str | None) -> str:
        if saved is not None and not is_outside(saved):
            return saved
        noun = {"augment": "augmentation"}.get(part, part)
        code = f"the {noun} {saved}" if saved else f"{noun} code of your own"
        example = f"{saved!r}" if saved else "…"
        raise SpecError(
            f"{self.path} was trained with {code}. Code from outside is executed only where you "
            f"name it yourself. Give it again: {self.call}(path, {part}={example})."
        )

    def recipe(self, saved: Any, state: FinalState) -> tuple[Recipe, tuple[str, ...]]:
        """What was learned with, from JSON values, and what differs from it, as is accepted.

        Once there is a state, a file of weights is known by its hash: what was learned is stored,
        and no file that a directory names is read.

        Args:
            saved: The recipe that the state was learned with.
            state: What was learned.

        Raises:
            SpecError: A part is not given again, or not the same, or has no such setting or not
                of this value.
            MethodError: The method is not the same.
        """
        values = dotted(saved)
        method = self.method_or(saved["method"])
        network = self.network_or(values["network.name"])
        augment = self.augment_or(values["data.augment"])
        changes = self._changed_augment(augment, state, values["data.augment"])
        changes += self._changed_network(network, state, values["network.name"])
        if isinstance(method, Method):
            values = {key: value for key, value in values.items() if key not in saved["options"]}
        library = network_maker(network).library if isinstance(network, str) else None
        if library and not library.starts_random(values.get("network.weights")):
            if state.pretrained is None:
                raise ValueError("the network has weights whose hash is not there")
            values["network.weights"] = f"sha256:{state.pretrained}"
        values |= {"network.name": network, "data.augment": augment}
        recipe = resolve_recipe(method, [Layer(str(self.path), values)])
        return recipe, (*self._changed_method(recipe.make_method(), state), *changes)

    def _changed_method(self, method: Method, state: FinalState) -> list[str]:
        """Refuse a method that is another one; where that is accepted, name it."""
        if self.method is None or digest(describe(method, complete=False)) == state.method:
            return []
        if not self.accept_changed:
            raise MethodError(
                f"The method given to {self.call} is not the one that {self.path} was trained "
                f"with. Give the same parts and values, from the same code, or accept_changed=True."
            )
        return [f"method, trained as {state.method[:12]}"]

    def _changed_network(
        self, network: str | nn.Module, state: FinalState, named: str | None
    ) -> list[str]:
        """The same of a network, which was learned by this name."""
        if self.network is None:
            return []
        source, same = None, named is None
        if isinstance(network, str):
            code = network_maker(network).code
            source = code.sources.digest if code else None
            same = network == named or (
                code is not None and code.attribute == (named or "").rpartition(":")[2]
            )
        if source == state.network and same:
            return []
        shown = named or "a module of your own"
        if not self.accept_changed:
            raise SpecError(
                f"The network given to {self.call} is not the one that {self.path} was "
                f"trained with ({shown}): its name or its code differs. Give the same network, "
                f"from the same code, or accept_changed=True."
            )
        return [f"network {shown}, trained as {(state.network or 'a module')[:12]}"]

    def _changed_augment(self, augment: Augment, state: FinalState, named: str | None) -> list[str]:
        """The same of an augmentation."""
        if self.augment is None:
            return []
        ours = any(isinstance(part, str) and not is_outside(part) for part in (augment, named))
        same = augment_digest(find_augmentation(augment)) == state.augment
        if augment == named if ours else same:
            return []
        shown = named or "code of your own"
        if not self.accept_changed:
            raise SpecError(
                f"The augmentation given to {self.call} is not the one that {self.path} was "
                f"trained with ({shown}): its name or its code differs. Give the same one, leave "
                f"it out if it is not code of your own, or accept_changed=True (--accept-changed)."
            )
        return [f"augmentation, trained as {(state.augment or shown)[:12]}"]
