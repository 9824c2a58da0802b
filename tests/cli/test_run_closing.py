"""What is said after a run's numbers: the paper's, joint training's, or that it was a look."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.lab import Expected, Verdict, time_text, verdict, verdict_text

RUN = ("run", "lwf", "digits/5", "--epochs", "1", "--quiet")


def test_a_whole_protocol_stands_beside_the_papers_number(paper_runs: Any) -> None:
    runs = paper_runs([0.78, 0.79, 0.80])
    found = verdict(runs)

    assert found is not None
    lines = verdict_text(found, runs).splitlines()
    assert lines[0] == "AAC: got 79.0 ± 0.6 %, paper 79.42 ± 0.57 % (table 2)"
    assert lines[1].startswith("training.lr 0.05 is ours: the paper")


def test_what_differs_is_listed_and_nothing_is_compared(paper_runs: Any) -> None:
    runs = paper_runs([0.5], training__epochs=5, lamb=3)
    found = verdict(runs)

    assert found is not None
    text = verdict_text(found, runs)
    assert "got" not in text
    assert "AAC: paper 79.42 ± 0.57 % (table 2)" in text
    assert "so these are not compared" in text


def test_a_method_the_paper_does_not_report_is_left_alone(ancl: Any) -> None:
    ended = ancl(*RUN, "--json")
    assert (ended.json["paper"], ended.json["quick"]) == (None, False)


def test_intransigence_needs_a_joint_run_on_the_same_stream(ancl: Any) -> None:
    alone = ancl(*RUN, "--json").json
    joint = ancl("run", "joint", "digits/5", "--epochs", "1", "--quiet", "--json").json
    both, text = ancl(*RUN, "--json").json, ancl(*RUN).out
    other = ancl(*RUN, "--tasks", "2", "--json").json
    (Path(joint["runs"][0]["directory"]) / "result.json").write_text("{")
    damaged = ancl(*RUN, "--json").json

    assert damaged["intransigence"] is None
    assert alone["intransigence"] is joint["intransigence"] is other["intransigence"] is None
    gaps = [
        joint["runs"][0]["matrices"]["taw"][j][j] - both["runs"][0]["matrices"]["taw"][j][j]
        for j in range(5)
    ]
    assert both["intransigence"]["mean"] == pytest.approx(sum(gaps) / 5, abs=1e-6)
    assert f"Intransigence: {100 * sum(gaps) / 5:.1f} points" in text


def test_forward_transfer_needs_a_run_of_every_task_alone(ancl: Any) -> None:
    without = ancl(*RUN, "--json").json
    alone = ancl("run", "alone", "digits/5", "--epochs", "1", "--quiet", "--json").json
    both, text = ancl(*RUN, "--json").json, ancl(*RUN).out

    assert without["forward_transfer"] is alone["forward_transfer"] is None
    gains = [
        both["runs"][0]["matrices"]["taw"][j][j] - alone["runs"][0]["matrices"]["taw"][j][j]
        for j in range(1, 5)
    ]
    assert both["forward_transfer"]["mean"] == pytest.approx(sum(gains) / 4, abs=1e-6)
    assert f"Forward transfer: {100 * sum(gains) / 4:.1f} points" in text


def test_a_quick_look_is_one_epoch_on_few_images_and_says_so(ancl: Any) -> None:
    quick = ("run", "a-lwf", "digits/5", "--quick", "--quiet")
    shown = ancl(*quick, "--dry-run", "--json").json["runs"][0]
    ended = ancl(*quick)

    assert [task["train"] for task in shown["tasks"]] == [40] * 5
    epochs = {stage["stage"]: stage["most_epochs"] for stage in shown["stages"]}
    assert (epochs["main"], epochs["auxiliary"]) == (1, 1)
    assert shown["settings"]["training.epochs"] == {"value": 1, "source": "--quick"}
    assert "A quick look: few epochs on few images per class" in ended.out
    assert "paper" not in ended.out


def test_a_preset_lies_between_benchmark_and_file(ancl: Any) -> None:
    Path("c.yaml").write_text("training: {patience: 7}\n")
    arguments = ("--preset", "official", "--dry-run", "--json")
    shown = ancl("run", "lwf", "digits/5", *arguments).json["runs"][0]
    filed = ancl("run", "lwf", "digits/5", "--config", "c.yaml", *arguments).json["runs"][0]
    refused = ancl("run", "si", "digits/5", "--preset", "official")

    assert shown["settings"]["training.patience"] == {"value": 10, "source": "--preset official"}
    assert shown["settings"]["training.lr"] == {"value": "search", "source": "--preset official"}
    assert filed["settings"]["training.patience"] == {"value": 7, "source": "c.yaml"}
    assert [s["stage"] for s in shown["stages"]].count("rate trial") == 15
    assert refused.code == 2
    assert refused.err.startswith("--preset official is what the authors released, and si is not")


def test_curves_go_where_log_says(ancl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    written: dict[str, int] = {}

    class SummaryWriter:
        def __init__(self, place: str) -> None:
            self.place = place

        def add_scalar(self, tag: str, value: float, step: int) -> None:
            written[self.place] = written.get(self.place, 0) + 1

        def close(self) -> None:
            written["closed"] = written.get("closed", 0) + 1

    fake = SimpleNamespace(SummaryWriter=SummaryWriter)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    first = ancl(*RUN, "--log", "tensorboard", "--json")
    directory, count = first.json["runs"][0]["directory"], dict(written)
    ancl(*RUN, "--log", "tensorboard", "--json")
    missing = ancl(*RUN, "--log", "nowhere")

    place = f"{directory}/tensorboard"
    assert count == {place: count[place], "closed": 1}
    # The second time everything is found in the store, and still written.
    assert written == {place: 2 * count[place], "closed": 2}
    assert missing.code == 2
    assert "There is no log 'nowhere'" in missing.err


@pytest.mark.parametrize("more", [(), ("--workers", "2")])
def test_an_epoch_of_a_shared_stage_goes_to_the_curves_of_every_run(
    ancl: Any, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    written: dict[str, set[tuple[str, int]]] = {}
    closed: list[str] = []

    class SummaryWriter:
        def __init__(self, place: str) -> None:
            self.place = place

        def add_scalar(self, tag: str, value: float, step: int) -> None:
            assert (tag, step) not in written.setdefault(self.place, set())
            written[self.place].add((tag, step))

        def close(self) -> None:
            closed.append(self.place)

    fake = SimpleNamespace(SummaryWriter=SummaryWriter)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    given = ("--on", "digits/5", "--tasks", "2", "--epochs", "1", "--threads", "1", *more)
    ended = ancl("compare", "lwf", "a-lwf", *given, "--log", "tensorboard", "--json", "--quiet")

    places = {name: each["runs"][0] for name, each in ended.json["methods"].items()}
    lwf, a_lwf = (written[f"{places[name]}/tensorboard"] for name in ("lwf", "a-lwf"))
    assert ("t0/train_task", 0) in lwf & a_lwf
    assert ("t1/auxiliary_train_task", 0) in a_lwf - lwf
    assert ("metrics/aac", 1) in lwf & a_lwf
    assert sorted(closed) == sorted(f"{place}/tensorboard" for place in places.values())


def test_our_own_numbers_are_called_expected_whatever_the_number_of_seeds(paper_runs: Any) -> None:
    number = Expected("aac", 57.1, 0.3, 0, 5)

    text = verdict_text(Verdict((number,), [], []), paper_runs([0.58]))
    assert text == "AAC: got 58.0 %, expected 57.10 ± 0.30 % (n = 5, measured with ancl)"


@pytest.mark.parametrize(("lamb", "learned"), [("1e9", False), ("1", True)])
def test_a_lamb_at_which_nothing_new_is_learned_is_told_at_the_end_and_in_the_report(
    ancl: Any, lamb: str, learned: bool
) -> None:
    small = ("--tasks", "2", "--epochs", "5", "--threads", "1", "--quiet", "--lamb", lamb)
    told = "Seed 0: the newest task was not learned. On its "

    run = ancl("run", "lwf", "digits/5", *small)
    compared = ancl("compare", "lwf", "--on", "digits/5", *small)
    ancl("report")

    assert run.code == compared.code == 0
    assert run.out.splitlines()[-1].startswith(told) is not learned
    assert (f"\nlwf: {told}" in compared.out) is not learned
    assert (told in Path("runs/report/report.html").read_text()) is not learned
    assert (told in Path("runs/report/tables/overview.md").read_text()) is not learned


def test_the_time_says_what_runs_cost_and_not_why_it_was_less() -> None:
    # Two workers do it in half the time, and nothing was in the store.
    runs: Any = [SimpleNamespace(seconds={"main 0": 40.0, "main 1": 50.0})] * 2

    assert time_text(runs, 90.0) == "Time: 1 min 30 s; each run on its own: 3 min 0 s of work"
    assert time_text(runs[:1], 2.0) == "Time: 2.0 s; the run on its own: 1 min 30 s of work"
    assert time_text(runs[:1], 90.5) == "Time: 1 min 30 s"
