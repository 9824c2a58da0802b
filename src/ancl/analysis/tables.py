"""One seed's analysis: the networks of a task, measured in every way, as tables."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import product

from ancl.analysis.cka import Grams, cka, layer_grams
from ancl.analysis.context import AnalysisContext, Row, Tables
from ancl.analysis.forgetting import OldLoss
from ancl.analysis.interpolation import BACKBONE, distance, distances, drawn_to, linear_error
from ancl.analysis.landscape import mixed
from ancl.analysis.landscape_tables import Terrain
from ancl.data import Batches
from ancl.methods.task_history import ClassHistory
from ancl.regularizers import Lwf, WeightRegularizer
from ancl.stages.runner import Storage
from ancl.types import Params

TEMPERATURES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
MINIBATCH = 64


class Study:
    """Measures the networks of one task.

    Args:
        scene: The networks.
        store: Where landscapes are kept.
        announce: Told of what takes time.
    """

    def __init__(
        self,
        scene: AnalysisContext,
        store: Storage,
        announce: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._scene, self._announce = scene, announce
        self._terrain = Terrain(scene, store, announce)

    @property
    def keys(self) -> tuple[str, ...]:
        """What of the store it is made of."""
        return (*(stage.key for stage in self._scene.ways.stages), *self._terrain.keys)

    def tables(self) -> Tables:
        """Every table by name; those that do not exist for the method are left out."""
        makers: dict[str, Callable[[], Iterable[Row]]] = {
            "accuracy": self.accuracies,
            "distance": self.distances,
            "forgetting": self.forgetting,
            "interpolation": self.interpolation,
            "temperature": self.temperatures,
            "cka": self.cka,
            "positions": self._terrain.positions,
            "landscape": self._terrain.landscape,
            "paths": self._terrain.paths,
        }
        found: Tables = {}
        for name, make in makers.items():
            rows = [{"seed": self._scene.setting.seed, **row} for row in make()]
            if rows:
                found[name] = rows
        return found

    def accuracies(self) -> Iterator[Row]:
        """Test accuracy of each task as the method infers, and their mean."""
        for (name, lamb_a), trained in self._scene.regime.named.items():
            if trained.accuracy:
                each = {f"task {index}": value for index, value in enumerate(trained.accuracy)}
                mean = sum(trained.accuracy) / len(trained.accuracy)
                yield {"network": name, "lamb_a": lamb_a, "mean": mean, **each}

    def distances(self) -> Iterator[Row]:
        """Distances to old, auxiliary and multitask network; theirs to each other too."""
        for (name, lamb_a), trained in self._scene.regime.named.items():
            found = distances(trained.tensors, self._scene.references, self._scene.names)
            yield {"network": name, "lamb_a": lamb_a, **found}

    def forgetting(self) -> Iterator[Row]:
        """The bound ½ λ_max ‖θ₂ − θ₁‖² beside the increase of the earlier tasks' loss."""
        self._announce("sharpness of the earlier tasks' loss")
        spoken = ClassHistory.of(self._scene.tasks).old_classes
        told = self._scene.setting.task_aware
        classes = {task.index: task.classes if told else spoken for task in self._scene.tasks[:-1]}
        names = [name for name in self._scene.names if name in self._scene.regime.old_names]
        old = self._scene.regime.old.tensors
        loss = OldLoss(
            self._scene.network(),
            old,
            names,
            self._scene.images("old"),
            classes,
            self._scene.setting,
        )
        sharpness = loss.sharpness(double=self._scene.wishes.double)
        for row, trained in self._scene.compared:
            yield {**row, **loss.row(trained.tensors, sharpness)}

    def interpolation(self) -> Iterator[Row]:
        """Where quadratic penalties draw the backbone, beside where it was found."""
        omega = self._scene.omega
        if not isinstance(omega, WeightRegularizer):
            return
        start, end = (_backbone(self._scene.references[name]) for name in ("old", "auxiliary"))
        before = omega.curvature(self._scene.regime.importance)
        fresh = omega.curvature(self._scene.regime.auxiliary_importance)
        names = sorted(before)  # a store gives tensors back in an order of its own
        for lamb_a, trained in self._scene.regime.ancl.items():
            expected, idle = drawn_to(start, end, before, fresh, *self._scene.lambs(lamb_a))
            ours = _backbone(trained.tensors)
            yield {
                "lamb_a": lamb_a,
                "expected_old": distance(expected, start, names),
                "expected_auxiliary": distance(expected, end, names),
                "measured_old": distance(ours, start, names),
                "measured_auxiliary": distance(ours, end, names),
                "measured_expected": distance(ours, expected, names),
                "undecided": idle,
            }

    def temperatures(self) -> Iterator[Row]:
        """How far LwF's gradient is from its form for large T, which interpolates logits."""
        if not isinstance(self._scene.omega, Lwf):
            return
        samples = self._scene.images("train")[-1].samples
        logits, setting = {}, self._scene.setting
        for key, trained in self._scene.regime.named.items():
            network = self._scene.network()
            network.load(trained.tensors)
            logits[key] = setting.images.answering(network, setting.device)(samples).logits
        teachers = logits["old", None], logits["auxiliary", None]
        every = slice(0, self._scene.tasks[-1].classes.stop)
        history = ClassHistory.of(self._scene.tasks)
        own = history.old_classes, history.current
        for lamb_a, temperature in product(self._scene.regime.ancl, TEMPERATURES):
            error = partial(
                linear_error, logits["ancl", lamb_a], *teachers, self._scene.lambs(lamb_a)
            )
            yield {
                "lamb_a": lamb_a,
                "temperature": temperature,
                "error_own_classes": error(own, temperature),
                "error_same_classes": error((every, every), temperature),
            }

    def cka(self) -> Iterator[Row]:
        """CKA to old, auxiliary and multitask network: each layer's, and their mean."""
        self._announce("CKA")
        split, estimator = self._scene.wishes.split or "old", self._scene.wishes.estimator
        samples = mixed([part.samples for part in self._scene.images(split)])
        label = {"split": split, "estimator": estimator, "images": len(samples)}
        size = self._scene.setting.training.batch_size
        if estimator == "minibatch":
            size = -(-len(samples) // max(len(samples) // MINIBATCH, 1))
        device = self._scene.setting.device
        batches = Batches(samples, size, self._scene.setting.normalization, device=device)
        network = self._scene.network()

        def grams(tensors: Params) -> dict[str, Grams]:
            network.load(tensors)
            return layer_grams(network, batches, whole=estimator != "minibatch")

        references = {name: grams(tensors) for name, tensors in self._scene.references.items()}
        for row, trained in self._scene.compared:
            ours = grams(trained.tensors)
            layers = {
                layer: {
                    name: cka(ours[layer], theirs[layer], unbiased=estimator != "biased")
                    for name, theirs in references.items()
                }
                for layer in ours
            }
            mean = {
                name: sum(layer[name] for layer in layers.values()) / len(layers)
                for name in references
            }
            for layer, values in {"mean": mean, **layers}.items():
                yield {**row, **label, "layer": layer, **values}


def _backbone(tensors: Params) -> Params:
    return {n.removeprefix(BACKBONE): t for n, t in tensors.items() if n.startswith(BACKBONE)}
