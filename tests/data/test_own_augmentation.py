"""Augmentations of a user's own: what they may be, how they are checked, keyed and resumed."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ancl import Events, Learner, SpecError, Store, Training, make_method, spec
from tests.data.own_augmentations import Roll, alone, brighter
from tests.lab import Batches, Epoch, Samples, build, digits, find_augmentation, generator, plan

Write = Callable[[str, Mapping[str, str]], Path]

CODE = """
import torch

def shift(x, generator):
    return x.roll(int(torch.randint(0, 3, (), generator=generator)), dims=1)

def noise(x):
    return (x.int() + torch.randint(0, 4, x.shape)).clamp(max=255).to(torch.uint8)
"""
SHORT = Training(epochs=3, batch_size=32, lr=0.05, schedule="cosine")


def batches(augment: Any) -> Batches:
    x = torch.arange(10 * 16, dtype=torch.uint8).view(10, 4, 4, 1)
    return Batches(Samples(x, torch.arange(10)), 4, None, augment)


def test_a_function_changes_shuffled_batches_and_not_those_in_order() -> None:
    plain, changed = batches("none"), batches(Roll(1))

    expected = [batch.x.roll(1, dims=3) for batch in plain.shuffled(generator(0))]
    found = [batch.x for batch in changed.shuffled(generator(0))]
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    untouched = [batch.x for batch in changed.in_order()]
    assert torch.equal(torch.cat(untouched), torch.cat([b.x for b in plain.in_order()]))


def test_it_draws_from_the_generator_it_is_given() -> None:
    first = torch.cat([b.x for b in batches(brighter).shuffled(generator(1))])
    again = torch.cat([b.x for b in batches(brighter).shuffled(generator(1))])
    other = torch.cat([b.x for b in batches(brighter).shuffled(generator(2))])

    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (lambda x: x.float(), r"<lambda> returned torch.float32 of shape"),
        (lambda x: x[:1], r"returned torch.uint8 of shape \(1, 8, 8, 1\)"),
        (lambda x: None, "returned NoneType for uint8 images"),
        (lambda x: x.nothing, "stopped with AttributeError"),
        (lambda x, y, z: x, r"takes \(x, y, z\)"),
        (lambda: None, r"takes \(\)"),
        (lambda x, *, p: x, r"takes \(x, p\)"),
        (3, "augment is of type int"),
        ("flipp", "Did you mean 'flip'"),
        ("nowhere.py:f", r"There is no file nowhere.py"),
    ],
)
def test_what_does_not_fit_is_refused_before_training(own: Any, message: str) -> None:
    samples, began = digits().train, list[str]()
    events = Events()
    events.stage_begins = lambda stage: began.append(stage.name)  # type: ignore[method-assign]

    with pytest.raises(SpecError, match=message):
        Learner("lwf", "mlp", augment=own, training=SHORT, events=events).learn(
            samples.x[samples.y < 2], samples.y[samples.y < 2].tolist()
        )
    assert began == []


def test_floats_are_refused(lab: Any) -> None:
    with pytest.raises(SpecError, match="changes uint8 images"):
        replace(lab.setting(), normalization=None, augment=brighter)


# -- keys ----------------------------------------------------------------------------------------


def main_key(lab: Any, augment: Any) -> tuple[str, str]:
    stages = plan(make_method("finetune"), lab.tasks(), lab.setting(augment=augment))
    main = next(stage for stage in stages if stage.name == "main")
    return main.key, main.unstored


def test_keys_depend_on_code_and_settings(lab: Any, write: Write) -> None:
    folder = write("a", {"aug.py": CODE})
    other = write("b", {"other.py": CODE})
    changed = write("c", {"aug.py": CODE.replace("0, 3", "0, 4")})
    found = [
        find_augmentation(f"{place}:shift") for place in (folder / "aug.py", other / "other.py")
    ]

    keys = [main_key(lab, each)[0] for each in found]
    assert keys[0] == keys[1]
    assert main_key(lab, find_augmentation(f"{changed}/aug.py:shift"))[0] != keys[0]
    assert main_key(lab, Roll(1))[0] == main_key(lab, Roll(1))[0] != main_key(lab, Roll(2))[0]
    assert main_key(lab, "flip")[0] not in keys


def test_what_has_no_source_of_its_own_is_not_stored(lab: Any) -> None:
    first, second = (lambda x: x), (lambda x: x.flip(2))

    assert "may hold values" in main_key(lab, first)[1]
    assert main_key(lab, first)[0] != main_key(lab, second)[0]
    assert main_key(lab, brighter)[1] == ""


def test_a_run_names_it_by_its_file(write: Write) -> None:
    folder = write("a", {"aug.py": CODE})
    settings = {"data.augment": f"{folder}/aug.py:noise", "network.name": "mlp"}

    made = build(spec("finetune", "digits/5", quick=True, settings=settings))

    assert made.setting.augment is find_augmentation(f"{folder}/aug.py:noise")
    assert made.unstored == ""
    with pytest.raises(SpecError, match=r"no function 'nois'. Did you mean 'noise'"):
        spec("finetune", "digits/5", settings={"data.augment": f"{folder}/aug.py:nois"})


# -- resuming ------------------------------------------------------------------------------------


class Interrupt(Events):
    """Stops a training at the end of its second epoch."""

    def epoch_ends(self, stage: Any, epoch: Epoch) -> None:
        if epoch.epoch == 1:
            raise KeyboardInterrupt


@pytest.mark.parametrize("augment", [brighter, alone])
def test_an_interrupted_training_resumes_to_the_bit(lab: Any, tmp_path: Path, augment: Any) -> None:
    setting = lab.setting(training=replace(SHORT, batch_size=8), augment=augment)
    method, tasks = make_method("finetune"), lab.tasks()[:1]
    store = Store(tmp_path)

    whole = lab.learn(method, setting, tasks)
    with pytest.raises(KeyboardInterrupt):
        lab.learn(method, setting, tasks, store, Interrupt())
    key = whole.stage("main", 0).key
    assert store.load_checkpoint(key) is not None
    resumed = lab.learn(method, setting, tasks, store)

    for name, value in whole.final.items():
        assert torch.equal(resumed.final[name], value)
    plain = lab.learn(method, replace(setting, augment="none"), tasks)
    assert any(not torch.equal(plain.final[n], value) for n, value in whole.final.items())


# -- given again ---------------------------------------------------------------------------------


def part(*classes: int) -> tuple[Tensor, list[int]]:
    samples = digits().train
    chosen = torch.isin(samples.y, torch.tensor(classes))
    return samples.x[chosen], samples.y[chosen].tolist()


def taught(augment: Any) -> Learner:
    made = Learner("lwf", "mlp", scenario="til", training=SHORT, augment=augment)
    made.learn(*part(0, 1))
    return made


def test_a_learner_is_given_its_augmentation_again(tmp_path: Path, write: Write) -> None:
    folder = write("a", {"aug.py": CODE})
    name = f"{folder}/aug.py:shift"
    learner = taught(name)
    learner.save(tmp_path / "saved")

    with pytest.raises(SpecError, match=r"augmentation .*aug.py:shift.*Give it again.*augment="):
        Learner.load(tmp_path / "saved")
    for other in (f"{folder}/aug.py:noise", brighter, "flip"):
        with pytest.raises(SpecError, match=r"is not the one .*its code differs"):
            Learner.load(tmp_path / "saved", augment=other)
    again = Learner.load(tmp_path / "saved", augment=name)
    for each in (learner, again):
        each.learn(*part(2, 3))
    assert torch.equal(learner.scores(digits().test.x), again.scores(digits().test.x))

    with pytest.warns(UserWarning, match="Accepted, although its code has changed: augmentation"):
        accepted = Learner.load(tmp_path / "saved", augment="none", accept_changed=True)
    assert [text.split(",")[0] for text in accepted.accepted_changes] == ["augmentation"]


def test_a_function_is_given_again_and_one_without_a_source_cannot_be_compared(
    tmp_path: Path,
) -> None:
    taught(brighter).save(tmp_path / "function")
    with pytest.raises(SpecError, match="augmentation code of your own"):
        Learner.load(tmp_path / "function")
    Learner.load(tmp_path / "function", augment=brighter)

    taught(lambda x: x).save(tmp_path / "lambda")
    Learner.load(tmp_path / "lambda", augment=lambda x: x.flip(2))
