"""CCGN: its terms, what it keeps, that nothing is forgotten, and how it finds the task."""

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ancl import Events, Memory, MethodError, Training, make_method
from ancl.extend import CrossEntropy, Network, Output, Step
from tests.lab import (
    Batches,
    Gate,
    Gated,
    MemoryStore,
    OpenGates,
    OwnImages,
    Protect,
    Runner,
    Samples,
    TaskEntropy,
    TaskThenClass,
    as_input,
    ccgn,
    frequencies,
    patch_part,
    plan,
    strip_prefix,
)

TRAINING = Training(epochs=3, lr=0.1, batch_size=16, schedule="constant", weight_decay=0.1)


def step(
    logits: Tensor, y: Tensor, side: dict[str, Tensor], tasks: int = 2, progress: float = 1.0
) -> Step:
    classes = tuple(slice(2 * t, 2 * t + 2) for t in range(tasks))
    out = Output(logits, logits, side=side)
    return Step(logits, y, out, {}, classes, progress=progress)


def test_the_sparsity_loss_is_the_mean_share_of_open_gates() -> None:
    gates = torch.tensor([[0.25, 0.0, 1.0], [0.75, 0.5, 1.0]], requires_grad=True)
    batch = step(torch.zeros(2, 4), torch.tensor([2, 3]), {"gates": gates})

    # Means over images .5, .25, 1 of three layers: their mean times λ_s = .5
    assert 0.5 * OpenGates(0.1)(batch).item() == pytest.approx(0.291667, abs=1e-6)
    for value in (0.0, 1.0):
        closed = step(torch.zeros(2, 4), batch.y, {"gates": torch.full((2, 3), value)})
        assert 0.5 * OpenGates(0.1)(closed).item() == 0.5 * value


def test_the_sparsity_loss_counts_after_its_patience_and_wherever_epochs_are_judged() -> None:
    gates = torch.ones(2, 3, requires_grad=True)
    early = step(torch.zeros(2, 4), torch.tensor([2, 3]), {"gates": gates}, progress=0.09)
    late = step(torch.zeros(2, 4), torch.tensor([2, 3]), {"gates": gates}, progress=0.1)

    assert OpenGates(0.1)(early).item() == 0.0
    assert OpenGates(0.1)(late).item() == 1.0
    with torch.no_grad():
        assert OpenGates(0.1)(early).item() == 1.0


def test_images_of_earlier_tasks_count_for_the_task_classifier_alone() -> None:
    logits = torch.tensor([[9.0, 9.0, 1.0, 0.0], [0.0, 5.0, 3.0, 3.0]], requires_grad=True)
    side = {
        "gates": torch.tensor([[0.5, 0.5], [1.0, 1.0]]),
        "tasks": torch.tensor([[0.0, 2.0], [0.0, 2.0]]),
        "class_tasks": torch.tensor([[0, 0, 1, 1], [0, 0, 1, 1]]),
    }
    batch = step(logits, torch.tensor([2, 1]), side)

    # Of two images one is the task's own: −log σ(1); its gates; and log(1 + e^∓2) of both.
    assert OwnImages()(batch).item() == pytest.approx(0.313262, abs=1e-6)
    assert OpenGates(0.0)(batch).item() == 0.5
    assert TaskEntropy()(batch).item() == pytest.approx((0.126928 + 2.126928) / 2, abs=1e-5)
    none = step(logits, torch.tensor([0, 1]), side)
    OwnImages()(none).backward()
    assert OwnImages()(none).item() == 0.0
    assert logits.grad is not None
    assert logits.grad.abs().sum() == 0


def test_with_one_task_there_is_nothing_to_tell_and_the_loss_is_cross_entropy() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        logits = torch.randn(5, 2)
    side = {"tasks": logits[:, :1], "class_tasks": torch.zeros(5, 2, dtype=torch.long)}
    batch = step(logits, torch.tensor([0, 1, 1, 0, 1]), side, tasks=1)

    assert TaskEntropy()(batch).item() == 0.0
    assert OwnImages()(batch).item() == pytest.approx(CrossEntropy()(batch).item())


def test_one_task_with_open_gates_and_no_sparsity_is_finetuning(lab) -> None:
    """From the same weights, on the same batches; sums may go in another order."""
    training = replace(TRAINING, weight_decay=0.0)
    given, tasks = lab.setting(lab.resnet(), training=training), lab.tasks()[:1]
    plain = lab.learn(make_method("finetune"), given, tasks)
    method = make_method("ccgn", hidden=4, sparsity=0)
    gated = lab.fitted(method, given)
    stages = plan(method, tasks, gated)
    runner = Runner(stages, tasks, given.device, MemoryStore(), Events())
    start, names = runner.obtain(stages[0].key), kernel_names()
    begun = strip_prefix("network", plain.entry("grow", 0).tensors)
    for name in start.tensors:
        own = name.removeprefix("network/")
        if own in names:
            start.tensors[name].copy_(begun[names[own]])
        elif ".gates." in own and ".last." in own:
            start.tensors[name].fill_(50.0 if own.endswith("bias") else 0.0)
    store = MemoryStore()
    store.save(stages[0].key, start)

    ended = Runner(stages, tasks, given.device, store, Events()).obtain(stages[1].key)

    found = strip_prefix("network", ended.tensors)
    wanted = strip_prefix("network", plain.entry("main", 0).tensors)
    assert [stage.name for stage in stages[:2]] == ["grow", "main"]
    assert set(names.values()) == {name for name in wanted if "tracked" not in name}
    for own, other in names.items():
        assert torch.allclose(found[own], wanted[other], atol=1e-4), own
    moved = (begun["backbone.conv1.weight"] - wanted["backbone.conv1.weight"]).abs().max()
    assert moved > 1e-2
    losses = [
        [epoch["train"]["task"] for epoch in log]
        for log in (ended.meta["log"], plain.entry("main", 0).meta["log"])
    ]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


def kernel_names() -> dict[str, str]:
    """What a path of ResNet-8 has in place of every tensor of the plain network."""
    blocks = [f"layer{level}.0" for level in (1, 2, 3)]
    convs = ["conv1", *(f"{block}.conv{n}" for block in blocks for n in (1, 2))]
    found = {
        f"backbone.layers.{i}.conv.weight": f"backbone.{conv}.weight"
        for i, conv in enumerate(convs)
    }
    norms = {
        f"norms.{i}": conv.removesuffix(conv[-5:]) + conv[-5:].replace("conv", "bn")
        for i, conv in enumerate(convs)
    }
    for level in (1, 2):
        shortcut = f"layer{level + 1}.0.downsample"
        found[f"backbone.shortcuts.{level}.conv.weight"] = f"backbone.{shortcut}.0.weight"
        norms[f"shortcuts.{level}"] = f"{shortcut}.1"
    for own, other in norms.items():
        for part in ("weight", "bias", "running_mean", "running_var"):
            found[f"backbone.paths.0.{own}.{part}"] = f"backbone.{other}.{part}"
    return found | {f"head.{part}.0": f"head.{part}.0" for part in ("weights", "biases")}


def opening(lab: Any) -> Network:
    """A network whose first layer opens for images of ones, and not for images of zeros."""
    network = lab.fitted(ccgn(), lab.setting(lab.resnet())).architecture.build((2,))
    gated = network.eval().backbone
    assert isinstance(gated, Gated)
    gate = gated.paths[0].gates[0]
    assert isinstance(gate, Gate)
    nn.init.constant_(gate.first.weight, 1.0)
    nn.init.zeros_(gate.first.bias)
    nn.init.constant_(gate.last.weight, 1.0)
    nn.init.constant_(gate.last.bias, -1.0)
    return network


def test_frequencies_weigh_images_and_not_batches(lab) -> None:
    gated = opening(lab).backbone
    assert isinstance(gated, Gated)
    open_ones, closed_ones = torch.ones(64, 1, 6, 6), torch.zeros(16, 1, 6, 6)

    # 64 of 80 images; a mean over both batches would be .5.
    found = frequencies(gated, [open_ones, closed_ones])
    assert found[0].tolist() == pytest.approx([0.8, 0.8])


def test_the_classifier_chooses_the_task_and_its_path_the_class() -> None:
    class_tasks = torch.tensor([0, 0, 0, 1, 1])
    logits = torch.tensor(
        [[50.0, 0.0, 0.0, 0.1, 0.2], [0.1, 0.0, 0.3, 9.0, 8.0], [0.0, 0.0, 1e-6, 90.0, -90.0]]
    )
    tasks = torch.tensor([[0.0, 1.0], [0.0, -3.0], [0.1, 0.0]])
    side = {"tasks": tasks, "class_tasks": class_tasks.expand(3, -1)}
    scores = TaskThenClass().scores(Output(logits, logits, side=side), {})

    assert scores.argmax(dim=1).tolist() == [4, 2, 2]
    assert scores.isfinite().all()
    for row in range(3):
        p = torch.softmax(tasks[row].double(), 0)
        chosen = int(tasks[row].argmax())
        for c in range(5):
            task = int(class_tasks[c])
            own = logits[row].double()[class_tasks == task]
            wanted = logits[row, c].double() - own.logsumexp(0) + p[task].log()
            wanted -= 0 if task == chosen else torch.log(torch.tensor(3.0))
            assert scores[row, c].item() == pytest.approx(wanted.item(), abs=1e-4)
    untold = TaskThenClass().scores(Output(logits, logits), {})
    assert torch.equal(untold, logits)


def setting(lab: Any, task_aware: bool) -> Any:
    return lab.setting(lab.resnet(), training=TRAINING, task_aware=task_aware)


METHOD = make_method("ccgn", hidden=4)


@pytest.fixture(scope="module")
def learned(lab: Any) -> dict[bool, Any]:
    """Three tasks, where the task is told and where it is not; half of the gates begin shut."""
    with pytest.MonkeyPatch.context() as patch:
        patch_part(patch, "OPEN", 0.0)
        return {aware: lab.learn(METHOD, setting(lab, aware)) for aware in (True, False)}


@pytest.mark.parametrize("task_aware", [True, False], ids=["til", "cil"])
def test_no_task_is_forgotten_where_the_task_is_told(task_aware, lab, learned) -> None:
    run, net = learned[task_aware], lab.fitted(METHOD, setting(lab, task_aware)).architecture
    x = as_input(lab.source.test.x.dense(), lab.source.normalization, torch.device("cpu"))

    def answers(task: int) -> Tensor:
        tensors = run.entry("protect", task).tensors
        network = net.restore((2,) * (task + 1), strip_prefix("network", tensors)).eval()
        with torch.no_grad():
            return network(x).logits

    found = [answers(task) for task in range(3)]
    for task in range(3):
        for later in range(task + 1, 3):
            own = slice(2 * task, 2 * task + 2)
            assert torch.equal(found[later][:, own], found[task][:, own])
    for task in (0, 1):
        free = run.entry("protect", task).meta["free"]
        assert sum(free.values()) > 0, "nothing was drawn anew that could be forgotten"
    rows = [run.entry("evaluate", task).meta["taw"] for task in range(3)]
    assert rows[1][0] == rows[0][0]
    assert rows[2][:2] == rows[1]
    assert not torch.equal(found[1][:, 2:], found[1][:, :2])


def test_every_task_keeps_what_it_uses_and_the_kept_set_only_grows(learned) -> None:
    run = learned[True]
    free = [run.entry("protect", task).meta["free"] for task in range(3)]

    assert [task for name, task in run.names if name == "protect"] == [0, 1, 2]
    for before, after in pairwise(free):
        assert all(after[name] <= before[name] for name in before)
    rows = [
        {
            name: tensor
            for name, tensor in run.entry("protect", task).tensors.items()
            if name.endswith((".rows", ".kept"))
        }
        for task in range(3)
    ]
    for task in (0, 1):
        for name in (n for n in rows[task] if n.endswith(".rows")):
            kept = rows[task][name]
            assert bool((rows[task + 1][name] | ~kept).all())
            kernels = name.replace(".rows", ".kept")
            assert torch.equal(rows[task][kernels][kept], rows[task + 1][kernels][kept])


@pytest.mark.parametrize(("threshold", "kept"), [(0.0, True), (0.79, True), (0.8, False)])
def test_a_kernel_is_kept_if_it_opens_for_more_than_the_threshold(threshold, kept, lab) -> None:
    """Of 80 images it opens for 64."""
    network = opening(lab)
    val = Samples(torch.cat([torch.ones(64, 1, 6, 6), torch.zeros(16, 1, 6, 6)]), torch.zeros(80))
    said: list[str] = []
    work = SimpleNamespace(
        network=lambda: network,
        training_parts=lambda: ([val, val], [val]),
        batches=lambda parts: Batches(Samples.concatenate(parts), 30, None),
        seed=0,
        index=4,
        say=said.append,
    )

    result = Protect(threshold).run(work)

    assert result.tensors["network/backbone.layers.0.rows"].tolist() == [kept, kept]
    assert result.tensors["network/backbone.paths.0.gates.0.relevant"].tolist() == [kept, kept]
    assert result.meta["free"]["conv1"] == (0 if kept else 2)
    assert any("Task 5 keeps the last free kernels of conv1" in text for text in said) is kept


def test_what_is_full_is_said_once(learned) -> None:
    for run in learned.values():
        said = [text for text in run.said if "last free kernels" in text]
        named = [name for text in said for name in text.split(" of ")[1].split(". ")[0].split(", ")]
        last = run.entry("protect", 2).meta["free"]

        assert "Raise sparsity, or use a wider network" in said[0]
        assert len(named) == len(set(named))
        assert {name for name, count in last.items() if count == 0} == set(named)


def test_terms_and_the_classifier_follow_the_scenario(learned) -> None:
    told, untold = learned[True], learned[False]

    assert set(told.entry("main", 0).meta["log"][0]["train"]) == {"task", "sparsity"}
    assert set(told.entry("main", 2).meta["log"][0]["train"]) == {"task", "sparsity"}
    assert set(untold.entry("main", 2).meta["log"][0]["train"]) == {"task", "sparsity", "tasks"}
    assert untold.entry("main", 0).meta["log"][0]["train"]["tasks"] == 0.0
    names = {name for name in untold.network(2) if "backbone.tasks" in name}
    kinds = [f"{layer}.{part}" for layer in ("first", "last") for part in ("weight", "bias")]
    assert names == {f"network/backbone.tasks.{kind}" for kind in kinds}
    assert not any("backbone.tasks" in name for name in told.network(2))
    assert ("memory", 0) in untold.names
    assert ("memory", 0) not in told.names


@pytest.mark.parametrize("name", ["a-ccgn", "afec-ccgn", "ccgn+ancl"])
def test_it_has_no_variants_and_says_why(name) -> None:
    with pytest.raises(MethodError, match="what old tasks use is frozen, and all other weights"):
        make_method(name)


def test_scenarios_in_which_it_has_no_meaning_are_refused() -> None:
    method = make_method("ccgn")

    assert "all classes are the same" in method.problems("dil", None, 4)[0]
    assert "needs a memory in the scenario cil" in method.problems("cil", None, 4)[0]
    assert method.problems("cil", Memory(5), 4) == []
    assert method.problems("til", None, 4) == []
