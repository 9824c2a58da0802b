"""What a learner begins with: its recipe, and what the images of its first task decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from ancl.data import ImageView, Normalization, channel_statistics, chosen_normalization, raw_floats
from ancl.errors import SpecError
from ancl.learner.form import Form
from ancl.methods.method import Method
from ancl.networks import network_maker
from ancl.recipe.build import make_setting
from ancl.recipe.recipe import Layer, Recipe, RunSpec
from ancl.recipe.request import dotted_settings
from ancl.recipe.resolve import CALL, resolve_recipe
from ancl.runtime import resolve_device
from ancl.stages.setting import Setting

if TYPE_CHECKING:
    from ancl.learner.learner import Learner

HELD = 20
"""How many validation images of each class a learner keeps, at most."""


def begin_recipe(method: str | Method | Recipe, given: Mapping[str, Any], held: int) -> Recipe:
    """The recipe of a new learner.

    Args:
        method: See ``Learner``.
        given: All settings that were given, by their names in a recipe.
        held: How many images of each class it is to hold.

    Raises:
        SpecError: All wrong settings, each on its own line.
    """
    if isinstance(method, RunSpec):
        raise SpecError(
            "A learner is given its images when it learns, and a run's spec names them. Give "
            "the method and settings; ancl.load_run opens a finished run as a learner."
        )
    if isinstance(method, Recipe):
        if given:
            raise SpecError(f"{', '.join(given)}: a recipe has its settings already.")
        recipe = method
    else:
        recipe = resolve_recipe(method, [Layer(CALL, dotted_settings(dict(given)))])
    if held < 0:
        raise SpecError(f"held is {held}; it must be 0 or more.")
    if held != HELD and recipe.make_method().holds_features:
        raise SpecError(
            f"held is {held}, but this method holds a share of all images, as features: "
            f"val_fraction. Leave held out, or give val_fraction=0 to hold none."
        )
    return recipe


def first_setting(learner: Learner, x: ImageView, form: Form) -> Setting:
    """What decides the stages of all tasks besides the recipe: the first task's images."""
    normalization = learner._recipe.data.normalization
    for note in raw_floats(x, normalization):
        learner._say_once("floats", note)
    moments = chosen_normalization(normalization, x, channel_statistics(x))
    return setting_for(learner, form.shape, moments, x.dtype == torch.uint8)


def setting_for(
    learner: Learner, shape: Sequence[int], moments: Normalization | None, pixels: bool
) -> Setting:
    """What decides stages, for images of this shape, on the learner's device."""
    device = resolve_device(learner._device)
    return make_setting(learner._recipe, learner.method, shape, moments, device, pixels=pixels)


def reads_in_colour(recipe: Recipe, method: Method) -> bool:
    """Whether grey images get three channels: pretrained weights read all images so."""
    name = recipe.network["name"]
    library = network_maker(name).library if isinstance(name, str) else None
    return library is not None and method.infer.holds is not None
