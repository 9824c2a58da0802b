"""One seed's analysis: the networks of a task, measured in every way, as tables.

A table is a function from an :class:`AnalysisContext` to rows; ``TABLES`` has them by name.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import product

from ancl.analysis.cka import Grams, cka, layer_grams
from ancl.analysis.context import AnalysisContext, Row, Tables
from ancl.analysis.forgetting import OldLoss
from ancl.analysis.interpolation import (
    BACKBONE,
    distance,
    distances,
    linear_error,
    penalty_minimum,
)
from ancl.analysis.landscape import LandscapeTables
from ancl.data import Batches, interleaved
from ancl.errors import SpecError
from ancl.methods.task_history import ClassHistory
from ancl.regularizers import Lwf, WeightRegularizer
from ancl.types import Params

TEMPERATURES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
MINIBATCH = 64

TableFunction = Callable[[AnalysisContext], Iterable[Row]]


def make_tables(
    context: AnalysisContext, more_tables: Mapping[str, TableFunction] | None = None
) -> Tables:
    """Every table by name; those that do not exist for the method are left out.

    Args:
        context: The networks.
        more_tables: A user's own tables, by name.
    """
    landscape = LandscapeTables(context)
    functions: dict[str, Callable[[], Iterable[Row]]] = {
        **{name: partial(table, context) for name, table in TABLES.items()},
        "positions": landscape.positions,
        "landscape": landscape.landscape,
        "paths": landscape.paths,
        **{name: partial(table, context) for name, table in (more_tables or {}).items()},
    }
    tables: Tables = {}
    for name, make in functions.items():
        rows = [{"seed": context.setting.seed, **row} for row in make()]
        if rows:
            tables[name] = rows
    return tables


def check_names(more_tables: Collection[str]) -> None:
    """Refuse a user's table with the name of another one.

    Raises:
        SpecError: A name that is taken.
    """
    taken = [*TABLES, "positions", "landscape", "paths", "lamb"]
    both = [name for name in more_tables if name in taken]
    if both:
        raise SpecError(
            f"more_tables: {', '.join(both)} is the name of a table that every analysis has. Taken "
            f"are {', '.join(taken)}; choose another name."
        )


def accuracy_table(context: AnalysisContext) -> Iterator[Row]:
    """Test accuracy of each task as the method infers, and their mean."""
    for (name, lamb_a), trained in context.networks.named.items():
        if trained.accuracy:
            by_task = {f"task {index}": value for index, value in enumerate(trained.accuracy)}
            mean = sum(trained.accuracy) / len(trained.accuracy)
            yield {"network": name, "lamb_a": lamb_a, "mean": mean, **by_task}


def distance_table(context: AnalysisContext) -> Iterator[Row]:
    """Distances of every network to the old, the auxiliary and the multitask network."""
    for (name, lamb_a), trained in context.networks.named.items():
        lengths = distances(trained.tensors, context.references, context.names)
        yield {"network": name, "lamb_a": lamb_a, **lengths}


def forgetting_table(context: AnalysisContext) -> Iterator[Row]:
    """The bound ½ λ_max ‖θ₂ − θ₁‖² beside the increase of the earlier tasks' loss."""
    context.events.note("sharpness of the earlier tasks' loss")
    networks, setting, earlier = context.networks, context.setting, context.tasks[:-1]
    all_old = ClassHistory.of(context.tasks).old_classes
    loss = OldLoss(
        context.build_network(),
        networks.old.tensors,
        [name for name in context.names if name in networks.old_names],
        context.images("old"),
        {task.index: task.classes if setting.task_aware else all_old for task in earlier},
        setting,
    )
    sharpness = loss.sharpness(double=context.options.double)
    for row, trained in context.compared:
        yield {**row, **loss.row(trained.tensors, sharpness)}


def interpolation_table(context: AnalysisContext) -> Iterator[Row]:
    """The minimum of the quadratic penalties on the backbone, beside the weights found."""
    omega = context.regularizer
    if not isinstance(omega, WeightRegularizer):
        return
    start, end = (_backbone(context.references[name]) for name in ("old", "auxiliary"))
    old_curvature = omega.curvature(context.networks.importance)
    curvature = omega.curvature(context.networks.auxiliary_importance)
    names = sorted(old_curvature)  # a store returns tensors in its own order
    for lamb_a, trained in context.networks.ancl.items():
        expected, undecided = penalty_minimum(
            start, end, old_curvature, curvature, *context.lambs(lamb_a)
        )
        ours = _backbone(trained.tensors)
        yield {
            "lamb_a": lamb_a,
            "expected_old": distance(expected, start, names),
            "expected_auxiliary": distance(expected, end, names),
            "measured_old": distance(ours, start, names),
            "measured_auxiliary": distance(ours, end, names),
            "measured_expected": distance(ours, expected, names),
            "undecided": undecided,
        }


def temperature_table(context: AnalysisContext) -> Iterator[Row]:
    """How far LwF's gradient is from its form for large T, which interpolates logits."""
    if not isinstance(context.regularizer, Lwf):
        return
    samples = context.images("train")[-1].samples
    network, setting, logits = context.build_network(), context.setting, {}
    answers = setting.images.answering(network, setting.device)
    for key, trained in context.networks.named.items():
        network.load(trained.tensors)
        logits[key] = answers(samples).logits
    teachers = logits["old", None], logits["auxiliary", None]
    history = ClassHistory.of(context.tasks)
    every, groups = slice(0, history.current.stop), (history.old_classes, history.current)
    for lamb_a, temperature in product(context.networks.ancl, TEMPERATURES):
        error = partial(linear_error, logits["ancl", lamb_a], *teachers, context.lambs(lamb_a))
        yield {
            "lamb_a": lamb_a,
            "temperature": temperature,
            "error_own_classes": error(groups, temperature),
            "error_same_classes": error((every, every), temperature),
        }


def cka_table(context: AnalysisContext) -> Iterator[Row]:
    """CKA to the old, the auxiliary and the multitask network: of each layer, and their mean."""
    context.events.note("CKA")
    split, estimator = context.options.split or "old", context.options.estimator
    samples = interleaved([images.samples for images in context.images(split)])
    label = {"split": split, "estimator": estimator, "images": len(samples)}
    size = context.setting.training.batch_size
    if estimator == "minibatch":
        size = -(-len(samples) // max(len(samples) // MINIBATCH, 1))
    setting = context.setting
    batches = Batches(samples, size, setting.normalization, device=setting.device)
    network = context.build_network()

    def grams(tensors: Params) -> dict[str, Grams]:
        network.load(tensors)
        return layer_grams(network, batches, whole=estimator != "minibatch")

    references = {name: grams(tensors) for name, tensors in context.references.items()}
    for row, trained in context.compared:
        ours = grams(trained.tensors)
        layers = {
            layer: {
                name: cka(ours[layer], theirs[layer], unbiased=estimator != "biased")
                for name, theirs in references.items()
            }
            for layer in ours
        }
        mean = {
            name: sum(layer[name] for layer in layers.values()) / len(layers) for name in references
        }
        for layer, values in {"mean": mean, **layers}.items():
            yield {**row, **label, "layer": layer, **values}


TABLES: dict[str, TableFunction] = {
    "accuracy": accuracy_table,
    "distance": distance_table,
    "forgetting": forgetting_table,
    "interpolation": interpolation_table,
    "temperature": temperature_table,
    "cka": cka_table,
}
"""The tables of networks by name; those of the landscape are in ``LandscapeTables``."""


def _backbone(tensors: Params) -> Params:
    return {n.removeprefix(BACKBONE): t for n, t in tensors.items() if n.startswith(BACKBONE)}
