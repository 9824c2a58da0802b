"""Nothing mixes two devices, and no step of a training waits for one: shown without a GPU.

``tests/second_device.py`` is the second device. On it every method learns the same bits as on the
CPU, and every epoch reads the device at the places of ``READS`` alone, once each.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from ancl import Learner, Memory, Method, Training, make_method
from ancl.extend import CrossEntropy, Step, TaskWork, anchor_for
from examples.dark_replay import dark_replay
from examples.streaming_lda import slda
from tests.lab import (
    Batches,
    Fit,
    GradientNoise,
    Lwf,
    ReplayStream,
    Samples,
    generator,
    patch_part,
)
from tests.second_device import DEVICE, MixedDevicesError, SecondDevice, second_device
from tests.stages.test_again import given
from tests.stages.test_features import frozen_network
from tests.test_contract import LEFT_OUT, NAMES, REFUSED, base_of, method, network, same, stream

READS = {
    "loop.py Fit._train_epoch": "the means of an epoch's terms",
    "loop.py Fit._validate": "the same on validation images, and the number of correct answers",
    "loop.py Fit._check_last_weights": "whether the last weights are finite, after the last epoch",
    "lambda_rules.py AutoLambda.end_epoch": "the mean forces of an epoch",
    "lambda_rules.py BalancedLambda.end_epoch": "the mean λ_a of an epoch",
    "objective.py _sum": "the curvatures that a balance on weights compares, where λ has moved",
    "outer.py OuterStep._values": "the parameters that an outer step has moved",
}
"""All that an epoch reads of the device, each once, whatever the number of its steps."""
OFTEN = {"objective.py _sum": 2}
"""But for this: once for each of the two networks."""
ONCE = {"samples.py _moments", "losses.py _task_numbers", "random_resized_crop.py _table"}
"""What is copied to the device the first time that a process needs it."""
ONE = Training(epochs=1, lr=0.05, lr_first=0.1, batch_size=16, patience=1)


class Watched:
    """Notes what every epoch of every training waits for."""

    def __init__(self, mode: SecondDevice, patch: pytest.MonkeyPatch) -> None:
        self.epochs: list[Counter[str]] = []
        epoch = Fit.__next__

        def watched(fit: Any) -> Any:
            before = mode.waits.copy()
            try:
                return epoch(fit)
            finally:
                waits: Counter[str] = Counter()
                for (_, where), count in (mode.waits - before).items():
                    waits[where] += count
                self.epochs.append(waits)

        patch.setattr(Fit, "__next__", watched)

    def check(self) -> None:
        """Only what is documented, and that once an epoch."""
        for waits in self.epochs:
            often = {w: n for w, n in waits.items() if w not in ONCE and n > OFTEN.get(w, 1)}
            assert waits.keys() <= READS.keys() | ONCE
            assert not often


@pytest.fixture
def watching(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """The second device, with every epoch watched."""
    with second_device() as mode:
        yield Watched(mode, monkeypatch)


def scenario_of(name: str) -> str:
    return next(s for s in ("cil", "til") if (base_of(name), s) not in REFUSED | LEFT_OUT)


def same_bits(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """What was not recorded is NaN in a memory."""
    return all(one[name].isnan().equal(other[name].isnan()) for name in one) and same(
        *({name: tensor.nan_to_num() for name, tensor in part.items()} for part in (one, other))
    )


def key_of(key: str, there: Any, here: Any) -> str:
    """The key of the same stage on the other device."""
    stages = zip(there.stages, here.stages, strict=True)
    return next(other.key for stage, other in stages if stage.key == key)


def check_learned_twice(
    made: Method, lab: Any, watching: Watched, scenario: str = "cil", **options: Any
) -> None:
    """On both devices the same bits, and no wait that is not documented."""
    net = options.pop("net", None)
    tasks = options.pop("tasks", None) or stream(scenario, lab)[:2]
    training = options.pop("training", ONE)
    setting = lab.setting(net, training, task_aware=scenario == "til", **options)
    there = lab.learn(made, replace(setting, device=DEVICE), tasks)
    watching.check()
    here = lab.learn(made, setting, tasks)

    for key, entry in there.entries.items():
        assert all(type(tensor) is Tensor for tensor in entry.tensors.values())  # on the host
        assert same_bits(entry.tensors, here.entries[key_of(key, there, here)].tensors)
    trains = made.main != "none" or made.name == "gdumb"  # it trains after its tasks
    assert bool(watching.epochs) is trains
    last = (there.entry("evaluate", 1).meta, here.entry("evaluate", 1).meta)
    assert last[0]["taw"] == last[1]["taw"]
    assert last[0]["tag_val"] == last[1]["tag_val"]


SLOW = [name for name in NAMES if "-aanets-" in name]  # the plain one shows the same


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in NAMES]
)
def test_every_method_keeps_to_its_device_and_never_waits_in_a_step(name, lab, watching) -> None:
    check_learned_twice(method(name), lab, watching, scenario_of(name), net=network(name, lab))


def returning(lab: Any) -> tuple[Any, ...]:
    """Three classes; then two more, with new images of two known ones."""
    return given(lab, 0, 0, 3, {}), given(lab, 1, 3, 2, {0: 6, 2: 6}, skip=10)


def brighter(x: Tensor, generator: torch.Generator) -> Tensor:
    """An augmentation of a user's own, which knows nothing of devices."""
    add = torch.randint(0, 9, (len(x), 1, 1, 1), generator=generator, dtype=torch.uint8)
    return (x // 2).add_(add)


REPLAYED = Memory(per_class=4, batch=8)
COSINE = replace(ONE, schedule="cosine", epochs=2, warmup=0.2, clip=0.5)
OPTIONS: dict[str, tuple[Callable[[], Method], dict[str, Any]]] = {
    "crop": (lambda: method("a-icarl"), {"augment": "crop"}),
    "facil": (lambda: method("ewc"), {"augment": "facil"}),
    "own augmentation": (lambda: method("finetune"), {"augment": brighter}),
    "fixed versions": (lambda: make_method("eeil", balanced_epochs=1, enlarge=True), {}),
    "replay": (dark_replay, {"memory": REPLAYED}),
    "no training": (slda, {}),
    "cosine": (lambda: method("a-lwf"), {"training": COSINE}),
    "adamw": (lambda: method("lwf"), {"training": replace(ONE, optimizer="adamw", epochs=2)}),
    "proximal": (lambda: method("a-ewc"), {"training": replace(ONE, penalty_step="proximal")}),
    "auto on answers": (lambda: method("a-lwf", lamb="auto"), {"training": replace(ONE, epochs=2)}),
    "auto on weights": (lambda: method("a-ewc", lamb="auto"), {"training": replace(ONE, epochs=2)}),
    "fisher of samples": (lambda: method("ewc", estimator="sample"), {}),
    "searched rate": (lambda: method("finetune"), {"training": replace(ONE, lr_search=True)}),
    "augmented bias": (
        lambda: make_method("bic", bias_epochs=2, bias_augment=True),
        {"augment": "flip"},
    ),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_options_keep_to_their_device_too(option: str, lab: Any, watching: Watched) -> None:
    make, options = OPTIONS[option]
    check_learned_twice(make(), lab, watching, **options)


@pytest.mark.parametrize("name", ["a-lwf", "bic", "ewc"])
def test_classes_that_come_again_keep_to_their_device(name, lab, watching) -> None:
    check_learned_twice(method(name), lab, watching, tasks=returning(lab))


@pytest.mark.parametrize("name", ["a-icarl", "bic"])
def test_a_frozen_network_keeps_to_its_device(name, lab, watching) -> None:
    check_learned_twice(method(name), lab, watching, net=frozen_network())


@pytest.mark.parametrize(
    "settings",
    [
        {"sparsity": 30.0, "mask_scale": 20.0, "balanced_epochs": 1},
        {"classifier": "align"},
    ],
)
def test_masks_and_alignment_keep_to_their_device(settings, lab, watching) -> None:
    check_learned_twice(make_method("der", **settings), lab, watching, net=lab.resnet())


@pytest.mark.parametrize(
    "settings",
    [
        {"stability": "projected", "refit": 1},
        {"weight": "importance", "batch_norm": "estimate"},
    ],
)
def test_connectors_keep_to_their_device(settings, lab, watching) -> None:
    check_learned_twice(make_method("connector", **settings), lab, watching, net=lab.conv())


def test_a_learner_keeps_to_its_device(lab, watching, monkeypatch, tmp_path) -> None:
    source, answers = lab.source.train, []
    for device in (DEVICE, torch.device("cpu")):
        patch_part(monkeypatch, "learner_device", lambda name, device=device: device)
        learner = Learner("a-icarl", "mlp", scenario="cil", training=ONE, memory=4)
        for first in (0, 3):
            index = torch.cat([source.of_class(number) for number in range(first, first + 3)])
            learner.learn(source.x[index], source.y[index])
        learner.save(tmp_path / device.type)
        again = Learner.load(tmp_path / device.type)
        answers.append(learner.scores(lab.source.test.x.dense()))
        assert torch.equal(again.scores(lab.source.test.x.dense()), answers[-1])
    watching.check()

    assert type(answers[0]) is Tensor
    assert torch.equal(*answers)


@pytest.mark.parametrize(("room", "sent"), [(None, 1), (10**9, 1), (100, 3)])
@pytest.mark.parametrize("augment", ["none", "flip", "crop", "facil"])
def test_images_that_fit_are_sent_once_and_batches_are_the_same(
    augment, room, sent, lab, monkeypatch
) -> None:
    patch_part(monkeypatch, "room_on", lambda device: room)
    memory, task = lab.source.train.take(torch.arange(0, 60, 2)), lab.source.test
    both = Samples.concatenate([Samples(task.x.dense(), task.y), memory])
    here, there = (
        Batches(both, 16, lab.source.normalization, augment, device, exemplars=len(memory))
        for device in (torch.device("cpu"), DEVICE)
    )
    with second_device() as mode:
        for epoch in range(3):
            one, other = (b.shuffled(generator(0, epoch)) for b in (here, there))
            for batch, again in zip(one, other, strict=True):
                assert torch.equal(batch.x, again.x.cpu())
                assert torch.equal(batch.y, again.y.cpu())
                assert torch.equal(batch.exemplars, again.exemplars.cpu())

    whole = sum(len(part) * 36 for part in (task, lab.source.train))
    if sent == 1:
        assert mode.pixels <= whole  # another test may have sent some of them before
    else:
        assert mode.pixels >= 3 * len(both) * 36


# -- planted mistakes ------------------------------------------------------------------------


def on_host(owner: Any, name: str, change: Callable[..., Any]) -> Callable[..., None]:
    """A mistake: a method of a part of the library gives what it should not."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        right = getattr(owner, name)
        if isinstance(right, property):
            patch.setattr(owner, name, property(lambda self: change(right.fget(self))))
        elif hasattr(right, "func"):  # cached
            patch.setattr(owner, name, property(lambda self: change(right.func(self))))
        else:
            patch.setattr(owner, name, lambda *a, **k: change(right(*a, **k)))

    return plant


def cpu(tensors: dict[str, Any]) -> dict[str, Any]:
    return {n: cpu(t) if isinstance(t, dict) else t.cpu() for n, t in tensors.items()}


def wrong_loss(wrong: Callable[[Step], Any]) -> Callable[..., None]:
    """A mistake inside the task loss."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        right = CrossEntropy.__call__

        def loss(self: Any, step: Step) -> Tensor:
            return right(self, step) + 0.0 * wrong(step)

        patch.setattr(CrossEntropy, "__call__", loss)

    return plant


def wrong_noise(patch: pytest.MonkeyPatch) -> None:
    def gradients(self: Any, parameters: Any, epoch: int, batch: int, randomness: Any) -> None:
        for parameter in parameters:
            noise = torch.randn(parameter.shape, generator=randomness)
            parameter.grad.add_(noise.to(parameter.grad))

    patch.setattr(GradientNoise, "gradients", gradients)


def wrong_anchor(patch: pytest.MonkeyPatch) -> None:
    def stays(omega: Any, network: Any, *others: Any) -> Any:
        return anchor_for(omega, network.to("cpu"), *others)

    patch_part(patch, "stages_anchor_for", stays)


MISTAKES: dict[str, tuple[Callable[..., None], str, dict[str, Any]]] = {
    "labels stay": (on_host(Batches, "_batch", lambda b: b._replace(y=b.y.cpu())), "lwf", {}),
    "images stay": (on_host(Batches, "_batch", lambda b: b._replace(x=b.x.cpu())), "lwf", {}),
    "importance stays": (on_host(TaskWork, "importance_of", cpu), "ewc", {}),
    "a correction stays": (on_host(TaskWork, "correction", cpu), "bic", {"tasks": 3}),
    "a frozen base stays": (on_host(TaskWork, "_base", cpu), "lwf", {"frozen": True}),
    "recorded logits stay": (
        on_host(ReplayStream, "drawn", lambda drawn: (drawn[0], cpu(drawn[1]))),
        "replay",
        {"memory": REPLAYED},
    ),
    "an anchor stays": (wrong_anchor, "lwf", {}),
    "an anchor's answer is read": (
        on_host(Lwf, "penalty", lambda penalty: penalty.cpu().to(DEVICE)),
        "lwf",
        {},
    ),
    "new numbers are on the host": (
        wrong_loss(lambda s: (s.out.logits.sum(1) * torch.ones(len(s.y))).sum()),
        "finetune",
        {},
    ),
    "a table on the host is asked": (
        wrong_loss(lambda s: torch.arange(9.0)[s.y].sum()),
        "finetune",
        {},
    ),
    "a loss is read": (wrong_loss(lambda s: s.out.logits.sum().item()), "finetune", {}),
    "a condition is on values": (
        wrong_loss(lambda s: 1.0 if s.out.logits.isfinite().all() else 0.0),
        "finetune",
        {},
    ),
    "a mask selects": (wrong_loss(lambda s: s.out.logits[s.y > 0].sum()), "finetune", {}),
    "positions are looked for": (
        wrong_loss(lambda s: s.out.logits[(s.y > 0).nonzero().squeeze(1)].sum()),
        "finetune",
        {},
    ),
    "numbers are sent at every step": (
        wrong_loss(lambda s: torch.tensor([1.0, 2.0], device=s.y.device).sum()),
        "finetune",
        {},
    ),
    "noise is sent and waited for": (wrong_noise, "eeil", {}),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_planted_mistakes_are_caught(
    mistake: str, lab: Any, watching: Watched, monkeypatch
) -> None:
    plant, name, options = MISTAKES[mistake]
    plant(monkeypatch)
    made = dark_replay() if name == "replay" else method(name)
    net = frozen_network() if options.get("frozen") else None
    tasks, memory = stream("cil", lab)[: options.get("tasks", 2)], options.get("memory")

    with pytest.raises((MixedDevicesError, AssertionError)):
        check_learned_twice(made, lab, watching, net=net, tasks=tasks, memory=memory)
