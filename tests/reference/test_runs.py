"""Whole runs give the numbers that the authors' and peers' public code gave."""

from typing import Any

import pytest
import torch
from torch import Tensor

from ancl import Memory, make_method
from tests.lab import ImageFormat, UpdateImportance, inference_inputs, strip_prefix

TASK_AWARE = ("ewc", "mas", "lwf", "lfl", "a-ewc", "a-mas", "a-lwf", "a-lfl")
MOVED_BUFFERS = ("ewc", "mas", "a-ewc", "a-mas")
NOT_NUMBERS = {"method", "source", "peer_options", "ancl", "least_margin"}


def accuracies(learned: Any, task: int) -> dict[str, list[float]]:
    rows = learned.entry("evaluate", task).meta
    names = {"test_taw": "taw", "test_tag": "tag", "val_taw": "taw_val", "val_tag": "tag_val"}
    return {name: rows[own] for name, own in names.items()}


def importance(learned: Any, stage: str, task: int) -> dict[str, Tensor]:
    return strip_prefix("importance/gradients", learned.entry(stage, task).tensors)


def stages(reference: Any, want: dict[str, Any]) -> list[dict[str, Any]]:
    """What every training did, in the order of the file."""
    found = []
    for stage in want["stages"]:
        place = (stage["task"], stage["role"])
        epochs, network = reference.epochs[place], reference.networks[place][-1]
        found.append({"task": place[0], "role": place[1], "epochs": epochs, "network": network})
    return found


@pytest.fixture
def moved_buffers(monkeypatch) -> None:
    """Leave batch norm's statistics as an estimate of importance in training mode moves them."""
    estimate = UpdateImportance.run

    def run(self: Any, inputs: Any, context: Any) -> Any:
        found = estimate(self, inputs, context)
        work = self.work(inputs, context)
        network = work.network().train()
        for batch in work.batches([work.split.train]).shuffled(torch.Generator()):
            network(batch.x)
        for name, value in network.tensors().items():
            inputs["network"].tensors[f"network/{name}"].copy_(value)
        return found

    monkeypatch.setattr(UpdateImportance, "run", run)


def check_task_aware_run(name: str, file: str, reference: Any, lab: Any) -> None:
    want, rates = reference.load(file), reference.settings
    method = make_method(name, **want["ancl"]["options"])
    training = reference.training(lr=rates["lr"], lr_first=rates["lr_first"])
    auxiliary = reference.training(
        lr=rates["lr"],
        lr_first=rates["lr_first"],
        momentum=rates["aux_momentum"],
        weight_decay=rates["aux_weight_decay"],
    )
    setting = reference.setting(method, training, auxiliary=auxiliary)
    learned = lab.learn(method, setting, reference.tasks)
    tasks = []
    for index in range(3):
        tasks.append({"task": index, "accuracy": accuracies(learned, index)})
        if "importance" not in want["tasks"][index]:
            continue
        now = importance(learned, "importance", index)
        before = importance(learned, "importance", index - 1) if index else {}
        # Merged by halves: what this task added is twice the rest.
        own = {n: 2 * now[n] - (before[n] if before else 0) for n in now}
        tasks[-1] |= {"importance": now, "importance_own": own}
        if name.startswith("a-") and index:
            auxiliary_own = importance(learned, "auxiliary importance", index)
            tasks[-1]["importance_auxiliary"] = auxiliary_own

    found = reference.compare(want, {"stages": stages(reference, want), "tasks": tasks})

    found.said(file)
    assert found.left_out == NOT_NUMBERS | {"stages.epochs.val_tag"}


@pytest.mark.parametrize("name", TASK_AWARE)
def test_task_incremental_runs(name, reference, lab) -> None:
    check_task_aware_run(name, name, reference, lab)


@pytest.mark.parametrize("name", MOVED_BUFFERS)
def test_task_incremental_runs_whose_importance_moves_batch_norm(
    name, reference, lab, moved_buffers
) -> None:
    check_task_aware_run(name, f"{name}-unpatched", reference, lab)


def class_incremental(name: str, reference: Any, lab: Any, **values: Any) -> tuple[Any, ...]:
    """The recorded file, what was learned, and what is compared whatever the method."""
    want, rates = reference.load(name), reference.settings["cil"]
    method = make_method(want["ancl"]["method"], **want["ancl"]["options"])
    training = reference.training(lr=rates["lr"], lr_first=None, lr_min=rates["lr_min"], **values)
    memory = Memory(**want["ancl"]["memory"])
    setting = reference.setting(method, training, memory=memory, task_aware=False)
    learned = lab.learn(method, setting, reference.tasks)
    tasks = [
        {
            "task": index,
            "exemplars": reference.exemplars(learned, index),
            "accuracy": accuracies(learned, index),
        }
        for index in range(3)
    ]
    return want, learned, {"stages": stages(reference, want), "tasks": tasks}


def test_icarl(reference, lab) -> None:
    want, learned, got = class_incremental("icarl", reference, lab)
    method = make_method("icarl", **want["ancl"]["options"])
    images = ImageFormat(None, reference.settings["batch"])
    for index, task in enumerate(got["tasks"]):
        stage = learned.stage("main", index)
        network = stage.parts.architecture.build(stage.parts.history.blocks)
        network.load(strip_prefix("network", learned.entry("main", index).tensors))
        state = {"memory": learned.entry("memory", index)}
        all_known = inference_inputs(network, images, torch.device("cpu"), 4 * index + 4, state)
        task["class_means"] = method.infer.means(all_known.exemplars.samples, all_known)

    found = reference.compare(want, got)

    found.said("icarl")
    assert found.left_out == NOT_NUMBERS | {"stages.epochs.val_taw"}


def test_bic(reference, lab) -> None:
    want, learned, got = class_incremental("bic", reference, lab)
    alpha, beta = [1.0], [0.0]
    for index, task in enumerate(got["tasks"]):
        if index:
            alpha.append(learned.entry("bias", index).meta["alpha"])
            beta.append(learned.entry("bias", index).meta["beta"])
        task |= {"alpha": list(alpha), "beta": list(beta)}

    found = reference.compare(want, got)

    found.said("bic")
    assert found.left_out == NOT_NUMBERS | {"stages.epochs.val_taw"}


@pytest.mark.parametrize("name", ["lucir", "lucir-patience"])
def test_lucir(name, reference, lab) -> None:
    values = {"schedule": "constant", "epochs": reference.settings["cil"]["epochs"]}
    if name == "lucir-patience":
        values = {"select_by": "task_loss"}
    want, learned, got = class_incremental(name, reference, lab, **values)
    for stage in got["stages"]:
        for epoch in stage["epochs"]:
            epoch["val"] = {"task": epoch["val"]["task"]}
            epoch["val_loss"] = epoch["val"]["task"]
            if name == "lucir":
                del epoch["best"]
    for index in (1, 2):
        got["tasks"][index]["lambda"] = learned.entry("main", index).meta["lambs"]["old"]

    found = reference.compare(want, got)

    found.said(name)
    # The first task has no old network, so that there is no λ in it.
    differ = {"stages.epochs.val_taw", "tasks.lambda"}
    ends = {"least_margin"} if name == "lucir" else set()
    assert found.left_out == (NOT_NUMBERS - ends) | differ


def test_afec_on_ewc(reference, lab, monkeypatch) -> None:
    want, values = reference.load("afec-ewc"), reference.settings["afec"]
    reference.shuffled = False
    method = make_method("afec-ewc", **want["ancl"]["options"])
    training = reference.training(
        lr=values["lr"], lr_first=None, epochs=values["epochs"], **want["ancl"]["training"]
    )
    setting = reference.setting(method, training, network=reference.layers())
    learned = lab.learn(method, setting, reference.vector_tasks)
    tasks: list[dict[str, Any]] = []
    for index in range(2):
        epochs = []
        log = [row for row in learned.entry("main", index).meta["log"] if row["role"] == "main"]
        for number, logged in enumerate(log):
            network = reference.networks[index, "main"][number]
            epochs.append({"epoch": logged["epoch"], "train": logged["train"], "main": network})
            if index:
                other = reference.epochs[1, "auxiliary"][number]
                epochs[-1] |= {
                    "auxiliary_train": other["train"],
                    "auxiliary": reference.networks[1, "auxiliary"][number],
                    "importance_auxiliary": reference.anchored[number],
                }
        tasks.append({"task": index, "epochs": epochs})
    halved = importance(learned, "importance", 0)
    tasks[0]["importance"] = {name: 2 * value for name, value in halved.items()}

    found = reference.compare(want, {"tasks": tasks})

    found.said("afec-ewc")
    assert found.left_out == NOT_NUMBERS - {"least_margin"}
