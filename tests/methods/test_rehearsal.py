"""Methods that keep exemplars: what they compose, in which order, and what is refused."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from ancl import Events, Memory, ScenarioError, Store, Training, make_method
from ancl.extend import CrossEntropy
from tests.lab import (
    Argmax,
    ClampGradients,
    Corrected,
    Eeil,
    Epoch,
    Fit,
    GradientNoise,
    Icarl,
    LessForget,
    Lwf,
    MarginRanking,
    Nca,
    NearestMean,
    NonNegativeRows,
    OldShare,
    OneHot,
    Pod,
    Stage,
    check_hold_out,
    from_arrays,
    make_stream,
    patch_part,
    plan,
)

TRAINING = Training(epochs=2, lr=0.05, lr_first=0.1, batch_size=16, patience=1)
NAMES = ("icarl", "eeil", "bic", "wa", "lucir", "podnet")
SHORT: dict[str, dict[str, Any]] = {
    "eeil": {"balanced_epochs": 3},
    "bic": {"bias_epochs": 3},
    "podnet": {"balanced_epochs": 3, "proxies": 2},
}


def setting(lab: Any, name: str, **options: Any) -> Any:
    net = lab.mapped() if name.endswith("podnet") else None
    return lab.setting(net, **{"task_aware": False, **options})


def short(name: str, **settings: Any) -> Any:
    return make_method(name, **{**SHORT.get(name.rpartition("-")[2], {}), **settings})


def test_methods_compose_the_published_parts() -> None:
    icarl, eeil, bic, wa, lucir, podnet = (make_method(name) for name in NAMES)

    assert (icarl.task_loss, icarl.old.regularizer) == (CrossEntropy(), Icarl("bce_sum"))
    assert icarl.infer == NearestMean(mirrored=True)
    assert (eeil.old.regularizer, eeil.constrain) == (Eeil(2.0), GradientNoise(0.3, 0.55))
    tuning = eeil.finish[0]
    assert (tuning.epochs, tuning.lr, tuning.milestones) == (30, 0.01, (10, 20))
    assert (tuning.trains, tuning.keeps) == ("everything", "before")
    assert (tuning.factor, eeil.enlarge) == (None, True)
    assert (bic.old.regularizer, bic.infer, bic.hold_out) == (Lwf(2.0), Corrected(), 0.1)
    correction = bic.finish[0]
    assert (correction.epochs, correction.lr, correction.decay) == (200, 0.1, 0.1)
    assert (correction.milestones, correction.augment) == ((60, 120, 160, 180), False)
    assert (wa.old.lamb, wa.head, wa.constrain) == (OldShare(), "unbiased", NonNegativeRows())
    assert (lucir.old.regularizer, lucir.head) == (LessForget(), "cosine")
    assert lucir.extras[0].part == MarginRanking(0.5, 2, "mean")
    assert (lucir.trains, lucir.imprint, lucir.last_relu) == ("new rows", True, False)
    assert (lucir.finish, lucir.infer) == ((), Argmax())
    assert (podnet.task_loss, podnet.old.regularizer) == (Nca("official", 0.6), Pod("l2sq"))
    assert (podnet.constrain, podnet.head_options["proxies"]) == (ClampGradients(5.0), 10)
    assert (podnet.finish[0].trains, podnet.finish[0].lr) == ("head", 0.05)
    assert {make_method(name).memory for name in NAMES} == {Memory(per_class=20)}


def test_options_choose_other_forms() -> None:
    own = make_method("icarl", distill="bce_mean", lamb=2.0)
    assert (own.task_loss, own.old.lamb) == (OneHot(), OldShare(2.0))
    assert make_method("icarl", classify="logits").infer == Argmax()
    assert make_method("eeil", noise=0, balanced_epochs=0).constrain is None
    assert make_method("eeil", balanced_epochs=0).finish == ()
    assert make_method("eeil", balanced_factor=0.1).finish[0].factor == 0.1
    assert make_method("eeil", enlarge=False).enlarge is False
    assert make_method("bic", bias_augment=True).finish[0].augment is True
    assert make_method("wa", bias=True, nonnegative=False).head == "linear"
    assert make_method("wa", lamb=3.0).task_weight == 1.0
    lucir = make_method("lucir", balanced_epochs=20, margin_weight=0)
    assert (lucir.extras, lucir.finish[0].trains, lucir.finish[0].lr) == ((), "head", 0.01)
    assert make_method("podnet", classify="nearest_mean").infer == NearestMean()
    combined = make_method("a-icarl", auxiliary_data="combined", auxiliary_classes="all")
    assert (combined.auxiliary.data, combined.auxiliary.classes) == ("combined", "all")


ORDERS = {
    "a-icarl": ["grow", "auxiliary", "main", "memory", "evaluate"],
    "a-eeil": ["grow", "auxiliary", "main", "balanced_tuning", "memory", "evaluate"],
    "a-bic": ["grow", "auxiliary", "main", "bias", "memory", "evaluate"],
    "a-wa": ["grow", "auxiliary", "main", "align", "memory", "evaluate"],
    "a-lucir": ["grow", "auxiliary", "main", "memory", "evaluate"],
    "a-podnet": ["grow", "auxiliary", "main", "balanced_tuning", "memory", "evaluate"],
    "afec-bic": ["grow", "main", "bias", "memory", "evaluate"],
}


@pytest.mark.parametrize("name", ORDERS)
def test_the_order_of_a_tasks_stages(name, lab) -> None:
    made = short(name)
    stages = plan(made, lab.tasks(), lab.fitted(made, setting(lab, name)))
    of_task = {stage.name: stage for stage in stages if stage.task == 1}
    first = [stage.name for stage in stages if stage.task == 0]

    assert list(of_task) == ORDERS[name]
    assert first == ["grow", "main", "memory", "evaluate"]
    # Nothing after the main training reads the auxiliary network.
    after = list(of_task)[list(of_task).index("main") + 1 :]
    assert not any("auxiliary" in part for stage in after for part in of_task[stage].inputs)
    # Its own training reads no exemplars, the main network's does.
    assert "memory" in of_task["main"].inputs
    if "auxiliary" in of_task:
        assert "memory" not in of_task["auxiliary"].inputs


@pytest.mark.parametrize("name", NAMES)
def test_the_memory_grows_by_as_many_images_a_class(name, lab) -> None:
    learned = lab.learn(short(name), setting(lab, name))

    for task in range(3):
        labels = learned.entry("memory", task).tensors["memory/y"]
        assert labels.bincount().tolist() == [4] * (2 * task + 2)


def test_a_fixed_memory_shrinks_every_class_to_its_best(lab) -> None:
    learned = lab.learn(short("icarl"), setting(lab, "icarl", memory=Memory(total=25)))
    kept = [learned.entry("memory", task).tensors for task in range(3)]

    # 25 images: 12, 6 and 4 of each of 2, 4 and 6 classes.
    counts = [each["memory/y"].bincount().tolist() for each in kept]
    assert counts == [[12] * 2, [6] * 4, [4] * 6]
    first = [each["memory/x"][each["memory/y"] == 0] for each in kept]
    assert torch.equal(first[2], first[0][:4])
    assert Memory(total=2000).quota(60) == 33
    assert Memory(per_class=20).quota(60) == 20


@pytest.mark.parametrize("name", NAMES)
def test_host_and_its_variants_share_the_first_task(name, lab) -> None:
    keys = []
    for variant in ("", "a-", "afec-"):
        made = short(f"{variant}{name}")
        stages = plan(made, lab.tasks(), lab.fitted(made, setting(lab, name)))
        keys.append([(s.name, s.key) for s in stages if s.task == 0])

    assert keys[0] == keys[1] == keys[2]


def test_an_auxiliary_network_may_learn_from_the_memory_too(lab) -> None:
    combined = short("a-icarl", auxiliary_data="combined")
    learned = lab.learn(combined, setting(lab, "icarl"))
    current = lab.learn(short("a-icarl"), setting(lab, "icarl"))
    rows = "network/head.weights.0"

    def old_rows_moved(found: Any) -> bool:
        start = found.entry("grow", 2).tensors[rows]
        return not torch.equal(start, found.entry("auxiliary", 2).tensors[rows])

    assert "memory" in learned.stage("auxiliary", 2).inputs
    # Exemplars compete over all classes, so that old classes' rows learn as well.
    assert old_rows_moved(learned)
    assert not old_rows_moved(current)


@pytest.mark.parametrize(
    ("settings", "warned"),
    [
        ({"auxiliary_classes": "all"}, 1),
        ({"auxiliary_classes": "all", "auxiliary_data": "combined"}, 0),
        ({}, 0),
    ],
)
def test_targets_of_classes_never_shown_are_warned_of_once(settings, warned, lab) -> None:
    learned = lab.learn(short("a-icarl", **settings), setting(lab, "icarl"))

    assert len(learned.said) == warned
    assert all("that learned from this task's images alone" in text for text in learned.said)


def test_in_domains_what_needs_new_classes_is_left_out_and_said(lab) -> None:
    tasks = lab.tasks(scenario="dil", domains="permutation", per_class=8)
    learned = lab.learn(short("a-lucir", lamb=5.0, lamb_a=2.0), setting(lab, "lucir"), tasks)

    meta = learned.entry("main", 2).meta
    assert learned.said == [
        "a-lucir: tasks bring no new classes; left out: the margin term, imprinting, the factor "
        "on λ."
    ]
    assert meta["lambs"] == {"old": 5.0, "auxiliary": 2.0}
    assert set(meta["log"][0]["train"]) == {"task", "old", "auxiliary"}
    # 4 of each of 6 classes in each of 3 domains.
    memory = learned.entry("memory", 2).tensors
    assert memory["memory/y"].bincount().tolist() == [12] * 6
    assert memory["memory/task"].bincount().tolist() == [24] * 3


def test_new_classes_bring_margin_and_factor(lab) -> None:
    learned = lab.learn(short("a-lucir", lamb=5.0, lamb_a=2.0), setting(lab, "lucir"))
    meta = learned.entry("main", 2).meta

    # √(4/2) times both.
    assert meta["lambs"] == pytest.approx({"old": 7.071068, "auxiliary": 2.828427})
    assert set(meta["log"][0]["train"]) == {"task", "margin", "old", "auxiliary"}


def test_old_rows_rest_and_new_ones_begin_with_features(lab) -> None:
    learned = lab.learn(short("lucir"), setting(lab, "lucir"))
    drawn = lab.learn(short("lucir", imprint=False), setting(lab, "lucir"))
    rows = [f"network/head.weights.{block}" for block in range(2)]
    grown, trained = (learned.entry(stage, 1).tensors for stage in ("grow", "main"))

    assert torch.equal(grown[rows[0]], trained[rows[0]])
    assert not torch.equal(grown[rows[1]], trained[rows[1]])
    assert not torch.equal(grown[rows[1]], drawn.entry("grow", 1).tensors[rows[1]])
    length = grown[rows[0]].norm(dim=1).mean()
    torch.testing.assert_close(grown[rows[1]].norm(dim=1), length.expand(2))


@pytest.mark.parametrize("name", ["finetune", "ewc", "joint", "lwf"])
def test_other_methods_use_a_memory_too(name, lab) -> None:
    given = setting(lab, name, memory=Memory(per_class=4))
    without, learned = lab.learn(make_method(name), setting(lab, name)), None
    learned = lab.learn(make_method(name), given)

    if name == "joint":
        assert [s.key for s in learned.stages] == [s.key for s in without.stages]
    else:
        assert learned.entry("memory", 1).tensors["memory/y"].bincount().tolist() == [4] * 4
        assert learned.stage("main", 0).key == without.stage("main", 0).key
        assert learned.stage("main", 1).key != without.stage("main", 1).key


@pytest.mark.parametrize("name", ["bic", "wa"])
def test_what_weighs_new_against_old_classes_is_refused_in_domains(name) -> None:
    for variant in ("", "a-", "afec-"):
        problems = make_method(f"{variant}{name}").problems("dil", Memory(per_class=4), 6)
        assert len(problems) == 1
        assert "there all classes are the same" in problems[0]
    assert make_method(name).problems("cil", Memory(per_class=4), 6) == []


def test_a_memory_that_does_not_fit_is_refused_before_training(lab) -> None:
    bic, (first, task) = make_method("bic"), lab.tasks()[:2]

    assert "at least 2 images per class" in bic.problems("cil", Memory(per_class=1), 6)[0]
    assert "at least 2 images per class" in bic.problems("cil", Memory(total=6), 6)[0]
    assert bic.problems("cil", Memory(per_class=2), 6) == []
    lone = replace(task, counts=(5, 1))
    with pytest.raises(ScenarioError, match=r"Class 3 has 1 image to train on, but this method"):
        check_hold_out(Memory(per_class=20), bic.hold_out, [first, lone])
    check_hold_out(Memory(per_class=200), bic.hold_out, [first, task])
    check_hold_out(Memory(per_class=20), 0.0, [first, lone])
    check_hold_out(None, bic.hold_out, [first, lone])


@pytest.mark.parametrize("name", ["icarl", "eeil", "bic", "wa", "lucir", "podnet", "a-wa"])
def test_a_memory_larger_than_a_class_keeps_it_whole(name, lab) -> None:
    images = lab.tasks()[0].counts[0]
    learned = lab.learn(short(name), setting(lab, name, memory=Memory(per_class=images + 4)))
    kept = learned.entry("memory", 2).tensors

    assert kept["memory/y"].bincount().tolist() == [images] * 6
    held = kept["memory/y"][kept["memory/held"]].bincount(minlength=6).tolist()
    # BiC holds out a tenth of its quota, and trains on all others.
    assert held == ([2] * 6 if name == "bic" else [0] * 6)


def test_versions_are_a_training_matter_of_every_task_but_the_first(lab) -> None:
    given = setting(lab, "eeil")
    one, other = (
        plan(made, lab.tasks(), lab.fitted(made, given))
        for made in (short("a-eeil", enlarge=enlarge) for enlarge in (True, False))
    )
    differ = [(a.name, a.task) for a, b in zip(one, other, strict=True) if a.key != b.key]
    trainings = [stage for stage in one if "training" in stage.parts.held]
    versions = {(s.name, s.task): s.parts.images.versions for s in trainings}

    assert [name for name, task in differ if task == 1] == ORDERS["a-eeil"][1:]
    assert not [name for name, task in differ if task == 0]
    assert versions["main", 0] is False
    trainings = ("auxiliary", "main", "balanced_tuning")
    assert {versions[name, 1] for name in trainings} == {True}


def test_versions_are_learned_in_place_of_the_runs_augmentation(lab, monkeypatch) -> None:
    seen: dict[tuple[str, int], int] = {}

    def recorded(network, objective, train, val, view, training, path, *others) -> Any:
        seen[path[2], path[1]] = train.count // len(train.samples)
        assert val is None or val.versions is None
        return Fit(network, objective, train, val, view, training, path, *others)

    patch_part(monkeypatch, "stages_fit", recorded)
    made = short("a-eeil", balanced_epochs=1)
    flipped = setting(lab, "eeil", augment="flip")
    cropped = setting(lab, "eeil", augment="crop")
    learned = lab.learn(made, flipped, lab.tasks()[:2])

    assert seen == {
        ("main", 0): 1,
        ("auxiliary", 1): 12,
        ("main", 1): 12,
        ("balanced_tuning", 1): 12,
    }
    assert learned.said == []
    # In the second task the run's augmentation decides nothing.
    keys = [plan(made, lab.tasks()[:2], lab.fitted(made, each)) for each in (flipped, cropped)]
    first, *images = ([s.parts.held.get("images") for s in stages] for stages in keys)
    tasks = [stage.task for stage in keys[0]]
    assert all(a == b for t, a, b in zip(tasks, first, images[0], strict=True) if t == 1)
    assert any(a != b for t, a, b in zip(tasks, first, images[0], strict=True) if t == 0)


def test_versions_of_what_is_no_image_are_left_out_and_said(lab) -> None:
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(60, 1, 6, 6, generator=draw).numpy(), torch.arange(60).remainder(4).numpy()
    tasks = make_stream(from_arrays(x, y, x, y), tasks=2, val_fraction=0.2).tasks
    given = replace(setting(lab, "eeil"), normalization=None)

    enlarged = lab.learn(short("eeil"), given, tasks)
    plain = lab.learn(short("eeil", enlarge=False), given, tasks)

    said = "Inputs are not uint8 images; left out: their twelve versions."
    assert (enlarged.said, plain.said) == ([said], [])
    assert all(torch.equal(t, plain.final[name]) for name, t in enlarged.final.items())


class Stopping(Events):
    """Raises as Ctrl-C does when a stage's second epoch ends."""

    def __init__(self, name: str) -> None:
        self.name = name

    def epoch_ends(self, stage: Stage, epoch: Epoch) -> None:
        if (stage.name, stage.task, epoch.epoch) == (self.name, 1, 1):
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("name", "stage", "settings"),
    [
        ("bic", "bias", {}),
        ("bic", "bias", {"bias_augment": True}),
        ("eeil", "main", {}),
        ("eeil", "balanced_tuning", {}),
    ],
)
def test_stopped_inside_a_stage_and_gone_on_with(name, stage, settings, lab, tmp_path) -> None:
    training = replace(TRAINING, epochs=3, schedule="constant")
    given = setting(lab, name, training=training, augment="crop")
    made = short(name, **settings)
    expected = lab.learn(made, given)
    with pytest.raises(KeyboardInterrupt):
        lab.learn(made, given, store=Store(tmp_path), reporter=Stopping(stage))
    seen: list[int] = []

    class Watching(Events):
        def epoch_ends(self, now: Stage, epoch: Epoch) -> None:
            if (now.name, now.task) == (stage, 1):
                seen.append(epoch.epoch)

    resumed = lab.learn(made, given, store=Store(tmp_path), reporter=Watching())

    # The first epoch is found; the second was reported before it was kept.
    assert seen == [1, 2]
    for each in expected.stages:
        one, other = resumed.entries[each.key].tensors, expected.entries[each.key].tensors
        assert one.keys() == other.keys()
        assert all(torch.equal(one[tensor], other[tensor]) for tensor in one)
