"""TensorBoard and W&B: what is sent where, with stand-ins for both packages."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ancl import RunResult, SpecError, run
from tests.lab import (
    Layer,
    Point,
    RunLog,
    Stage,
    TensorBoard,
    WandB,
    Writer,
    epoch_of,
    make_log,
    resolve,
    result_json,
)


class Collected(Writer):
    """Keeps what it is sent."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.points: list[Point] = []
        self.ended = 0

    def begin(self, directory: Path, spec: Any) -> None:
        self.began.append(directory.name)

    def write(self, point: Point) -> None:
        self.points.append(point)

    def end(self) -> None:
        self.ended += 1

    def tags(self) -> dict[tuple[str, int], float]:
        return {(tag, p.step): v for p in self.points for tag, v in p.scalars.items()}


@pytest.fixture(scope="module")
def result() -> RunResult:
    short = {"training.epochs": 2, "data.per_class": 10, "data.tasks": 2, "threads": 1}
    short |= {"lamb_a": "balance"}
    return run(resolve("a-lwf", "digits/5", [Layer("test", short)]).spec, runs=None)


def plain(result: RunResult) -> dict[str, Any]:
    """A result as events carry it."""
    return {**result_json(result), "log": list(result.log)}


def test_a_run_becomes_scalars_by_task_and_group(result: RunResult) -> None:
    collected = Collected()
    log = RunLog([lambda: collected])

    log.run_begins(Path("runs/one"), {}, result.keys)
    log.run_ends(Path("runs/one"), plain(result))

    tags = collected.tags()
    main = next(e for e in result.log if (e["task"], e["stage"], e["epoch"]) == (1, "main", 1))
    assert tags["t1/train_old", 1] == main["train"]["old"]
    assert tags["t1/train_loss", 1] == pytest.approx(sum(main["train"].values()))
    assert tags["t1/valid_acc", 1] == 100 * main["accuracy"]
    assert tags["t1/lamb_a", 1] == main["lambs"]["lamb_a"] > 0
    assert ("t1/auxiliary_train_task", 0) in tags
    assert ("t0/auxiliary_train_task", 0) not in tags
    assert tags["t0/test_acc_taw", 1] == 100 * result.matrices["taw"][1, 0]
    assert ("t1/test_acc_taw", 0) not in tags
    assert tags["metrics/aac", 1] == 100 * result.metrics["aac"]
    assert (collected.began, collected.ended) == (["one"], 1)


def test_what_was_sent_while_training_is_not_sent_again(result: RunResult) -> None:
    whole, partly = Collected(), Collected()
    for collected, live in ((whole, 0), (partly, 3)):
        log = RunLog([lambda kept=collected: kept])  # type: ignore[misc]
        log.run_begins(Path("runs/one"), {}, ["a key"])
        for record in result.log[:live]:
            stage = SimpleNamespace(name=record["stage"], task=record["task"], key="a key")
            other = SimpleNamespace(name="main", task=0, key="of another run")
            own = {k: v for k, v in record.items() if k not in ("task", "stage")}
            log.epoch_ends(cast(Stage, stage), epoch_of(own))
            log.epoch_ends(cast(Stage, other), epoch_of(own))
        log.run_ends(Path("runs/one"), plain(result))

    assert partly.points == whole.points


def test_a_stopped_run_is_closed_once() -> None:
    collected = Collected()
    log = RunLog([lambda: collected])
    log.close()
    log.run_begins(Path("runs/one"), {}, [])
    log.close()
    log.close()

    assert collected.ended == 1


def test_tensorboard_gets_every_scalar(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls: list[Any] = []

    class SummaryWriter:
        def __init__(self, place: str) -> None:
            calls.append(place)

        def add_scalar(self, *scalar: Any) -> None:
            calls.append(scalar)

        def close(self) -> None:
            calls.append("closed")

    fake = SimpleNamespace(SummaryWriter=SummaryWriter)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    writer = TensorBoard()
    writer.begin(tmp_path, {"method": "lwf"})
    writer.write(Point({"t0/train_loss": 1.5}, 3))
    writer.end()

    assert calls == [str(tmp_path / "tensorboard"), ("t0/train_loss", 1.5, 3), "closed"]


def test_wandb_gets_the_spec_and_every_scalar(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls: list[Any] = []
    opened = SimpleNamespace(
        define_metric=lambda *given, **named: calls.append((given, named)),
        log=calls.append,
        finish=lambda: calls.append("finished"),
    )

    def init(**given: Any) -> Any:
        calls.append(given)
        return opened

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    writer = WandB()
    writer.begin(tmp_path / "run_s0", {"method": "lwf"})
    writer.write(Point({"t0/train_loss": 1.5}, 3))
    writer.end()

    begun, metric, *rest = calls
    assert (begun["project"], begun["id"], begun["resume"]) == ("mine", "run_s0", "allow")
    assert begun["config"] == {"method": "lwf"}
    assert begun["reinit"] == "create_new"  # runs that share stages are open together
    assert metric == (("*",), {"step_metric": "step"})
    assert rest == [{"t0/train_loss": 1.5, "step": 3}, "finished"]


@pytest.mark.parametrize(
    ("name", "module"), [("tensorboard", "torch.utils.tensorboard"), ("wandb", "wandb")]
)
def test_a_missing_package_is_one_line_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, name: str, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SpecError, match=rf"pip install 'ancl\[{name}\]'"):
        make_log(name)


def test_an_unknown_log_is_told() -> None:
    with pytest.raises(SpecError, match="--log: There is no log 'tensorbord'"):
        make_log("tensorbord")
