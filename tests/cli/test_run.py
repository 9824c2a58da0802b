import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

RUN = ("run", "lwf", "digits/5", "--epochs", "1")


def settings(ended: Any, run: int = 0) -> dict[str, Any]:
    found = ended.json["runs"][run]["settings"]
    return {key: (each["value"], each["source"]) for key, each in found.items()}


def test_json_is_one_object_that_equals_the_written_result(ancl: Any) -> None:
    ended = ancl(*RUN, "--json")

    run = ended.json["runs"][0]
    written = json.loads((Path(run.pop("directory")) / "result.json").read_text())

    assert ended.code == 0
    assert run == written
    assert ended.json["metrics"]["aac"] == {
        "mean": written["metrics"]["aac"],
        "standard_error": None,
        "n": 1,
    }
    assert "task 5/5 main: 1 epoch, val" in ended.err


def test_text_shows_the_matrix_in_percent_and_each_metric_with_its_formula(ancl: Any) -> None:
    ended = ancl(*RUN, "--quiet")
    directory = next(Path("runs").glob("digits-5_lwf_s0_*"))
    found = json.loads((directory / "result.json").read_text())

    last = [f"{100 * value:.1f}" for value in found["matrices"]["taw"][-1]]
    lines = [line.split() for line in ended.out.splitlines()]

    assert ["task", "5", *last] in lines
    assert ["AAC", f"{100 * found['metrics']['aac']:.1f}", "%", "1/T", "sum_j", "R[T,j]"] in lines
    assert f"Results: {directory}" in ended.out
    assert ended.err == ""


def test_several_seeds_give_a_line_each_and_mean_with_standard_error(ancl: Any) -> None:
    ended = ancl(*RUN, "--seeds", "0-1,3", "--json", "--quiet")
    text = ancl(*RUN, "--seeds", "0-1,3", "--quiet").out

    values = [run["metrics"]["aac"] for run in ended.json["runs"]]
    mean = sum(values) / 3
    error = (sum((v - mean) ** 2 for v in values) / 2 / 3) ** 0.5
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line}

    assert [run["spec"]["seed"] for run in ended.json["runs"]] == [0, 1, 3]
    assert ended.json["metrics"]["aac"]["mean"] == pytest.approx(mean)
    assert ended.json["metrics"]["aac"]["standard_error"] == pytest.approx(error)
    assert rows["3"][1] == f"{100 * values[2]:.1f}"
    assert rows["mean"][1] == f"{100 * mean:.1f}"
    assert "n = 3 seeds" in text


def test_a_runs_spec_is_a_config_that_gives_the_same_run(ancl: Any) -> None:
    first = ancl("run", "a-lwf", "digits/5", "--epochs", "1", "--lamb", "3", "--json").json
    directory = first["runs"][0]["directory"]

    again = ancl("resume", "--config", f"{directory}/spec.yaml", "--json")

    assert again.json["runs"] == first["runs"]
    assert "19 stored, 0 to do" in again.err
    assert "main" not in again.err


def test_dry_run_trains_nothing_and_shows_what_another_method_stored(ancl: Any) -> None:
    before = ancl("run", "lwf", "digits/5", "--epochs", "1", "--dry-run", "--json").json["runs"][0]
    assert not Path("runs").exists()
    assert not any(stage["stored"] for stage in before["stages"])

    ancl("run", "finetune", "digits/5", "--epochs", "1", "--quiet")
    after = ancl(*RUN, "--dry-run", "--json").json["runs"][0]
    stored = [(s["task"], s["stage"]) for s in after["stages"] if s["stored"]]

    # The first task has no regularizer, and the second one's head grows from the same network.
    assert stored == [(0, "grow"), (0, "main"), (0, "evaluate"), (1, "grow")]
    assert len(list(Path("runs").glob("digits*"))) == 1
    assert after["tasks"][1]["classes"] == [2, 3]
    assert [s["most_epochs"] for s in after["stages"] if s["stage"] == "main"] == [1] * 5
    key = next(s["key"] for s in after["stages"] if (s["task"], s["stage"]) == (1, "main"))
    text = ancl(*RUN, "--dry-run").out
    assert f"2/5   main      {key[:12]}  to do, at most 1 epoch" in text
    assert "Seed 0: 11 of 15 stages to do" in text
    assert f"Results would go to {after['directory']}" in text


def test_settings_name_the_layer_they_come_from_and_flags_come_last(ancl: Any) -> None:
    Path("c.yaml").write_text(
        "method: ewc\nbenchmark: digits/5\noptions: {lamb: 1, alpha: 0.25}\n"
        "training:\n  lr: 1e-3\n  epochs: 9\n  epochs_first: 4\n"
    )
    arguments = ("--config", "c.yaml", "--set", "lamb=2", "--set", "training.milestones=[80, 120]")

    ended = ancl("run", "mas", *arguments, "--epochs", "3", "--dry-run", "--json")
    found = settings(ended)

    assert ended.json["runs"][0]["method"] == "mas"
    assert found["lamb"] == (2.0, "--set")
    assert found["alpha"] == (0.25, "c.yaml")
    assert found["training.lr"] == (0.001, "c.yaml")
    assert found["training.milestones"] == ([80, 120], "--set")
    assert found["training.epochs"] == (3, "--epochs")
    assert found["training.epochs_first"] == (None, "--epochs")
    assert found["training.batch_size"] == (32, "benchmark digits/5")
    assert found["training.momentum"] == (0.9, "default")
    assert found["auxiliary.lr"] == (0.001, "as training")


def test_a_split_replaces_the_benchmarks_own(ancl: Any) -> None:
    classes = ancl(
        *RUN, "--classes", "4,2x3", "--order", "9,8,7,6,5,4,3,2,1,0", "--dry-run", "--json"
    )
    tasks = ancl(*RUN, "--tasks", "2", "--dry-run", "--json")
    kept = ancl(*RUN, "--epochs", "3", "--set", "training.epochs_first=2", "--dry-run", "--json")

    assert [t["classes"] for t in classes.json["runs"][0]["tasks"]][:2] == [[9, 8, 7, 6], [5, 4]]
    assert settings(classes)["data.tasks"] == (None, "--classes")
    assert [len(t["classes"]) for t in tasks.json["runs"][0]["tasks"]] == [5, 5]
    assert settings(kept)["training.epochs_first"] == (2, "--set")


def test_class_incremental_learning_without_memory_is_warned_of_once(ancl: Any) -> None:
    arguments = ("--scenario", "cil", "--epochs", "1", "--seeds", "0-1", "--quiet", "--json")
    lwf = ancl("run", "lwf", "digits/5", *arguments)
    joint = ancl("run", "joint", "digits/5", *arguments)

    assert lwf.err.count("expected to collapse") == 1
    assert joint.err == ""
    aac = sum(lwf.json["runs"][0]["matrices"]["tag"][-1]) / 5
    assert lwf.json["runs"][0]["metrics"]["aac"] == pytest.approx(aac)


def test_own_data_needs_no_benchmark(ancl: Any) -> None:
    x = np.arange(40 * 9, dtype=np.uint8).reshape(40, 3, 3)
    np.savez("photos.npz", x=x, y=np.arange(40) % 4)
    Path("own.py").write_text(
        "import math\nfrom torch import nn\n"
        "def net(shape, *, width: int = 4):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), width))\n"
    )
    own = ["--data", "arrays:photos.npz", "--tasks", "2", "--set", "network.name=own.py:net"]

    ended = ancl("run", "lwf", *own, "--epochs", "1", "--json", "--threads", "1")
    [directory] = [path for path in Path("runs").iterdir() if not path.name.startswith(".")]
    again = ancl("run", "--config", str(directory / "spec.yaml"), "--json")

    assert ended.code == again.code == 0
    assert directory.name.startswith("arrays-photos-2_lwf_s0_")
    assert ended.json["runs"][0]["directory"] == again.json["runs"][0]["directory"]


def test_a_network_is_named_by_a_flag_also_one_from_a_file(ancl: Any) -> None:
    Path("mine.py").write_text(
        "import math\nfrom torch import nn\n"
        "def net(shape, *, width: int = 4):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), width), nn.ReLU())\n"
    )
    own = ("--network", "mine.py:net", "--set", "network.width=5")
    tried = settings(ancl("run", "lwf", "digits/5", *own, "--dry-run", "--json"))
    spec = ancl("run", "lwf", "digits/5", *own, "--quick", "--json").json["runs"][0]["spec"]
    wrong = ancl("run", "lwf", "digits/5", "--network", "resnet23")

    assert tried["network.name"] == ("mine.py:net", "--network")
    assert tried["network.width"] == (5, "--set")
    assert spec["network"] == {"name": "mine.py:net", "width": 5}
    assert wrong.code == 2
    assert "no network 'resnet23'. Did you mean 'resnet32'?" in wrong.err
