"""``training.lr=search``: a rule in the place of a number."""

import pytest

from ancl import SpecError
from tests.lab import Layer, resolve


def test_search_is_a_value_of_the_rate_for_both_networks() -> None:
    spec, sources = resolve("a-lwf", "digits/5", [Layer("--set", {"training.lr": "search"})])

    assert spec.training.lr_search
    assert spec.auxiliary.lr_search
    assert sources["training.lr_search"] == "--set"


def test_a_later_number_takes_the_search_back() -> None:
    layers = [Layer("file", {"training.lr": "search"}), Layer("--set", {"training.lr": 0.3})]
    spec = resolve("lwf", "digits/5", layers).spec

    assert (spec.training.lr, spec.training.lr_search) == (0.3, False)


def test_a_whole_spec_keeps_its_search() -> None:
    whole = {"training.lr": 0.02, "training.lr_search": True}
    assert resolve("lwf", "digits/5", [Layer("spec.yaml", whole)]).spec.training.lr_search


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"auxiliary.lr_search": True}, "auxiliary.lr_search is true and training.lr_search is"),
        (
            {"training.lr": "search", "data.val_fraction": 0, "training.schedule": "cosine"},
            "training.lr_search=true needs validation images",
        ),
        ({"data.val_fraction": 0}, "training.schedule=patience needs validation images"),
        ({"training.lr": "fast"}, "training.lr is 'fast'"),
    ],
)
def test_what_a_search_needs_is_told(values: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        resolve("lwf", "digits/5", [Layer("--set", values)])
