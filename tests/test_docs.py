"""The pages say what is true: their examples run as written, their links and flags exist."""

import functools
import json
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import torch
from PIL import Image

import ancl
from ancl import Store
from tests.lab import build, digits, known_source, patch_part

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG", "SECURITY")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
Command = Callable[[str], Any]


def text(page: str | Path) -> str:
    return (ROOT / "docs" / page).read_text(encoding="utf-8")


def commands(page: str | Path) -> list[str]:
    """Every line of a code block that calls the command, without its comment."""
    joined = text(page).replace("\\\n", " ")
    found = re.findall(r"^(?: {4})?(ancl [a-z].*)$", joined, re.MULTILINE)
    return [re.sub(r" {2,}[^-\s].*|\s+#.*", "", line) for line in found]


def blocks(page: str | Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", text(page), re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder to work in; what is imported from it is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # figures are optional, and slow
    modules = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - modules:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def write(folder: Path) -> Callable[[str], list[str]]:
    """Write every block that begins with the name of its file; the others are given back."""

    def files(page: str) -> list[str]:
        left = []
        for block in blocks(page):
            name = re.match(r"# (\w+\.py)\n", block)
            if name:
                (folder / name[1]).write_text(block, encoding="utf-8")
            else:
                left.append(block)
        return left

    return files


@pytest.fixture
def command(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Command:
    """The installed command, in this process and with one epoch; gives its JSON or its text."""
    # Through its entry point: only tests of the command import ``ancl.cli``.
    (entry,) = entry_points(group="console_scripts", name="ancl")

    def call(line: str, code: int = 0) -> Any:
        more = {"run": ["--quick"], "analyze": ["--epochs", "1"]}.get(line.split()[1], [])
        as_json = ["--json", "--threads", "1"] if more else []
        monkeypatch.setattr(sys, "argv", [*shlex.split(line), *more, *as_json])
        with pytest.raises(SystemExit) as ended:
            entry.load()()
        printed = capsys.readouterr()
        assert ended.value.code == code, f"{line}: {printed.err} {printed.out}"
        return json.loads(printed.out) if as_json else printed.out

    return call


def run_lines(page: str, command: Command) -> list[dict[str, Any]]:
    """Every run that the page calls, after it was checked to have learned five tasks."""
    lines = [line for line in commands(page) if "ancl run" in line and "--dry-run" not in line]
    runs = [command(line)["runs"][0] for line in lines]
    for run in runs:
        assert run["spec"]["data"]["tasks"] == 5
        assert 0.3 < run["metrics"]["learning_accuracy"] <= 1
    return runs


def test_a_method_as_written(write, command) -> None:
    assert write("add-a-method.md") == []

    runs = run_lines("add-a-method.md", command)

    methods = ["drift.py:drift", *["a-drift.py:drift"] * 2, "afec-drift.py:drift"]
    assert [run["spec"]["method"] for run in runs] == methods
    assert [run["spec"]["options"]["power"] for run in runs] == [1, 2, 2, 2]
    assert [run["spec"]["options"].get("lamb_a") for run in runs] == [None, 0.5, "balance:0.1", 1]
    assert "The exponent of the distance." in command(commands("add-a-method.md")[-1])


def test_a_network_as_written(write, command) -> None:
    (python,) = write("add-a-network.md")

    runs = run_lines("add-a-network.md", command)
    (analysis,) = [line for line in commands("add-a-network.md") if "analyze" in line]
    tables = command(analysis)["tables"]
    names: dict[str, Any] = {}
    exec(python, names)

    assert [run["spec"]["network"]["width"] for run in runs] == [8, 16]
    assert {row["layer"] for row in tables["cka"]} == {"conv", "mean"}
    assert names["result"].matrices["taw"].shape == (5, 5)


def test_backbones_as_written(write, command) -> None:
    (vectors, *_) = write("backbones.md")
    names: dict[str, Any] = {}
    exec(vectors, names)
    from frozen import learner  # type: ignore[import-not-found]

    (line,) = [line for line in commands("backbones.md") if "jitter" in line]
    (run,) = command(line)["runs"]
    samples = digits().train
    for first in (0, 2):
        chosen = (samples.y == first) | (samples.y == first + 1)
        learner.learn(samples.x[chosen], samples.y[chosen].tolist())

    assert run["spec"]["data"]["augment"] == "jitter.py:jitter"
    assert learner.evaluate(samples.x[chosen], samples.y[chosen].tolist(), task=1) > 0.9
    assert not learner._learned().architecture.learns
    assert names["learner"].classes == ["cat", "dog"]


def test_adapters_as_written(command, folder, write_digits) -> None:
    write_digits(folder / "photos", dict(zip("abcdef", range(6), strict=True)), "train", each=5)
    names: dict[str, Any] = {}
    (block,) = blocks("adapters.md")
    exec(block, names)
    *_, last = commands("adapters.md")  # that lines are understood: tests/cli/test_documented.py
    (run,) = command(last.replace("@224", "@32"))["runs"]  # in place of 224, to save time

    samples = digits().train
    few = samples.y < 2
    names["learner"].learn(samples.x[few], samples.y[few].tolist())
    assert names["learner"].classes == [0, 1]
    assert run["spec"]["network"]["trains"] == "adapter"
    assert run["spec"]["options"]["classifier"] == "slda"
    assert 0 < run["metrics"]["learning_accuracy"] <= 1


def test_a_learner_as_written(write, capsys) -> None:
    names: dict[str, Any] = {}
    for block in write("learner.md"):
        exec(block, names)
    printed = capsys.readouterr().out

    learner, shares = names["learner"], names["shares"]
    assert len(names["answers"]) == 5
    assert shares.shape == (5, 10)
    assert [row[0][0] for row in names["best"]] == names["answers"]
    assert len(names["safe"]) == 5
    assert 0 < names["threshold"] < 1
    assert names["accuracy"] > 0.85
    assert "held images (all tasks)" in printed
    assert repr(learner) in printed


def test_a_grown_network_keeps_its_answers(write) -> None:
    write("add-a-network.md")
    network = ancl.extend.architecture("growing.py:Growing", (1, 8, 8)).build([2]).eval()
    x = torch.rand(3, 1, 8, 8)
    before = network(x).features

    network.add_task(2)

    assert torch.equal(network(x).features, before)
    assert len(network.backbone.adapters) == 2
    assert torch.allclose(ancl.extend.frozen(network)(x).features, before, atol=1e-6)
    assert isinstance(ancl.extend.frozen(network).backbone.norm, torch.nn.Identity)


def write_photos(folder: Path, each: int = 5) -> None:
    samples = digits().train
    for number in range(10):
        (folder / str(number)).mkdir(parents=True)
        for position in samples.of_class(number)[:each].tolist():
            pixels = samples.x[position].squeeze(2).numpy()
            Image.fromarray(pixels).save(folder / str(number) / f"{position}.png")


def test_a_data_set_as_written(write, command, folder) -> None:
    arrays, python = write("add-a-data-set.md")
    write_photos(folder / "photos")
    exec(arrays, {})
    names: dict[str, Any] = {}

    runs = run_lines("add-a-data-set.md", command)
    exec(python, names)

    assert [run["spec"]["benchmark"] for run in runs] == [
        "folder-photos-32/5",
        "arrays-mine/5",
        "code-mine-data/5",
    ]
    assert runs[2]["metrics"]["aac"] == pytest.approx(names["result"].metrics["aac"])


def test_a_stage_as_written(write, command) -> None:
    assert write("add-a-stage.md") == []
    lines = commands("add-a-stage.md")

    runs = run_lines("add-a-stage.md", command)
    plan = command(next(line for line in lines if "--dry-run" in line))

    assert len(runs) == 2
    planned = [stage["stage"] for stage in plan["runs"][0]["stages"]]
    assert planned.count("average") == 4  # from the second task on


def test_a_stage_averages_weights(write) -> None:
    write("add-a-stage.md")
    settings = {"training.epochs": 1, "data.order": [0, 1, 2, 3], "data.tasks": 2, "threads": 1}
    spec = ancl.spec("averaged.py:averaged", "digits/5", share=0.25, settings=settings)
    ancl.run(spec, store="store")
    stages = {s.name: s for s in build(spec).stages if s.task == 1}
    grow, main, average = (
        Store(Path("store")).load(stages[name].key).tensors for name in ("grow", "main", "average")
    )

    for name in ("network/backbone.layers.1.weight", "network/backbone.layers.3.bias"):
        torch.testing.assert_close(average[name], 0.25 * grow[name] + 0.75 * main[name])
    assert torch.equal(average["network/head.weights.1"], main["network/head.weights.1"])


def test_an_analysis_as_written(write, capsys) -> None:
    assert write("add-an-analysis.md") == []

    runpy.run_path("sign_changes.py", run_name="__main__")
    lines = capsys.readouterr().out.splitlines()

    assert [line.split()[:2] for line in lines[1:]] == [["ancl", f"{n}.0"] for n in (1, 10, 100)]
    assert all(0 <= float(line.split()[-1].rstrip("%")) < 50 for line in lines)


def test_an_executor_as_written(write, capsys) -> None:
    assert write("add-an-executor.md") == []

    # Not by runpy: its __main__ would be what the workers import first.
    exec(Path("with_futures.py").read_text(encoding="utf-8"), {"__name__": "__main__"})
    finetune, lwf, failures = capsys.readouterr().out.splitlines()
    settings = {"training.epochs": 2, "threads": 1}
    serial = ancl.run(ancl.specs(["finetune", "lwf"], "digits/5", settings=settings), runs="other")

    assert failures == "[]"
    assert [finetune, lwf] == [f"{each.spec.method} {each.metrics['aac']}" for each in serial]


OLD = ("apple", "bicycle", "castle", "dolphin", "orchid")
NEW = ("bridge", "lion", "rocket", "sunflower", "tractor")


def serve(model: str, image: str) -> Any:
    """What the server of an exported learner answers to an image, from another process."""
    program = [sys.executable, "-m", "ancl", "serve", model, "--port", "0"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().split()[-1]
            with urlopen(f"{address}/predict", data=Path(image).read_bytes(), timeout=60) as reply:
                return json.load(reply)
        finally:
            process.terminate()


def follow_engineers(command: Command) -> tuple[dict[str, list[str]], dict[str, Any]]:
    """Run the page from its first line to its last: outputs by command, and the last names."""
    said: dict[str, list[str]] = {}
    names: dict[str, Any] = {}
    page = text("engineers.md").replace("\\\n", " ")
    for kind, block in re.findall(r"^```(sh|python)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        if kind == "python":
            exec(block, names)
            continue
        lines = block.splitlines()
        if lines[0].startswith("ancl serve"):
            model, image = lines[0].split()[2], re.search(r"@(\S+)", lines[1])
            assert image is not None
            names["served"] = serve(model, image[1])
            continue
        for line in lines:
            code = 3 if "swapped-photos --test" in line else 0
            if "forget" in said and line == "ancl learn things --data folder:photos":
                code = 2  # it holds the photo that was forgotten
            said.setdefault(line.split()[1], []).append(command(line, code))
    return said, names


def accuracies(said: dict[str, list[str]]) -> list[float]:
    """The first five classes after the first task and after both, then the five new ones."""
    found = [re.match(r"Accuracy: ([\d.]+) %", printed) for printed in said["evaluate"]]
    return [float(each[1]) for each in found if each]


def check_engineers(said: dict[str, list[str]], names: dict[str, Any]) -> None:
    learner = ancl.Learner.load("things")
    assert learner.tasks == [list(OLD), sorted(["stone bridge", *NEW[1:]]), [], []]
    assert learner.returning[2:] == [["lion", "rocket"], ["lion"]]
    assert names["taught"].learner.tasks == [list(OLD)]
    kept = ancl.versions("things")
    assert [(v.number, v.parent, bool(v.refused)) for v in kept] == [
        *((1, None, False), (2, 1, False), (3, 2, True), (4, 2, False), (5, 2, False)),
        *((6, 5, False), (7, 6, False), (8, 7, False), (9, 8, False)),
    ]
    kinds = [version.kind for version in kept[5:]]
    assert kinds == ["learn", "merge-classes", "rename", "forget"]
    assert names["before"]
    assert not names["files_with_it"]()
    assert "Forgot 1 image.\nExact: " in said["forget"][0]
    assert "Version 9 forgot images: ancl undo does not go back" in said["versions"][2]
    assert "Refused: version 2 stays." in said["learn"][2]
    # Of the two conditions one fails, or both: recall is above a half where right photos are many.
    refused = ("The recall of lion is", "by more than 2.0 points")
    assert any(reason in said["learn"][2] for reason in refused)
    assert said["undo"][0].startswith("things is now at version 2")
    assert "it is at version 5" in said["learn"][4]
    assert "swapped-photos/lion/000.png" not in said["versions"][1]
    assert "repaired-photos/lion/000.png" in said["versions"][1]
    assert ancl.Learner.load("own").tasks == [list(OLD)]
    assert names["largest"] < 1e-4
    files = sorted(Path("test-photos").rglob("*.png"))
    exact = learner.evaluate(files, [file.parent.name for file in files])
    assert names["accuracy"] == pytest.approx(exact)
    (expected,) = learner.top_k(["test-photos/apple/000.png"], 5)
    assert [each["label"] for each in names["served"]["answers"]] == [n for n, _ in expected]
    for file in ("things.onnx", "things.pt2", "things2.pt2"):
        assert Path(f"{file}.md").is_file()


def test_the_engineers_page_as_written(command, folder, write_digits, monkeypatch) -> None:
    patch_part(monkeypatch, "lite0_size", lambda self: 64)  # in place of 224, to save time
    for digit, (old, new) in enumerate(zip(OLD, NEW, strict=True)):
        for part, start in (("train", ""), ("test", "test-")):
            write_digits(folder / f"{start}photos", {old: digit}, part, each=5)
            write_digits(folder / f"{start}new-photos", {new: digit + 5}, part, each=5)
    # Many wrong ones, so that they show; few right ones, so that no class outweighs the others.
    write_digits(folder / "swapped-photos", {"lion": 7, "rocket": 6}, each=40, skip=10)
    write_digits(folder / "repaired-photos", {"lion": 6, "rocket": 7}, each=5, skip=10)
    write_digits(folder / "typed-photos", {"Lion": 6}, each=5, skip=60)

    said, names = follow_engineers(command)

    check_engineers(said, names)
    assert accuracies(said)[0] > 40  # chance is 20
    assert said["learn"][1].startswith("Learned task 2: bridge, lion, rocket, sunflower, tractor.")
    assert said["predict"][1].count("\n") == 26


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_engineers_numbers_are_those_of_real_photos(command, folder) -> None:
    try:
        source = known_source("cifar100").load()
    except ancl.ScenarioError as error:
        pytest.skip(str(error))
    for part, start in ((source.train, ""), (source.test, "test-")):
        for name in (*OLD, *NEW):
            place = folder / f"{start}{'photos' if name in OLD else 'new-photos'}" / name
            place.mkdir(parents=True)
            positions = part.of_class(source.classes.index(name)).tolist()
            for count, position in enumerate(positions):
                Image.fromarray(part.x[position].numpy()).save(place / f"{count:03}.png")
    # The same photos mirrored: no photo may come twice under two labels.
    for place, pairs in (
        ("swapped-photos", {"lion": "rocket", "rocket": "lion"}),
        ("repaired-photos", {"lion": "lion", "rocket": "rocket"}),
        ("typed-photos", {"Lion": "lion"}),
    ):
        for name, own in pairs.items():
            (folder / place / name).mkdir(parents=True)
            positions = source.train.of_class(source.classes.index(own)).tolist()
            # As many wrong ones as right ones, so that they show.
            parts = {"swapped-photos": slice(None), "typed-photos": slice(200, 220)}
            some = positions[parts.get(place, slice(200))]
            for count, position in enumerate(some):
                mirrored = Image.fromarray(source.train.x[position].flip(1).numpy())
                mirrored.save(folder / place / name / f"{count:03}.png")

    said, names = follow_engineers(command)

    check_engineers(said, names)
    written = re.findall(r"([\d.]+) %", text("engineers.md").partition("| test images of")[2])
    assert accuracies(said)[:3] == pytest.approx([float(number) for number in written[:3]], abs=4)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_point_to_files_and_headings(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", text(page)):
        if "://" in link:
            continue
        path, _, heading = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {link}"
        if ROOT / "docs" in page.parents:  # else the link is broken on the site
            assert ROOT / "docs" in target.parents, f"{page.name} links to {link}"
        if heading:
            titles = re.findall(r"^#+ (.*)$", text(target), re.MULTILINE)
            assert heading in [re.sub(r"[^\w -]", "", t.lower()).replace(" ", "-") for t in titles]


def test_every_page_is_in_the_navigation_once() -> None:
    site = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]

    def pages(entries: list[dict[str, Any]]) -> Iterator[str]:
        for entry in entries:
            for place in entry.values():
                yield from pages(place) if isinstance(place, list) else [place]

    files = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert sorted(pages(site["nav"])) == sorted(files)


def test_the_site_works_from_the_disk() -> None:
    site = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]

    # Without it links end in folders, and a browser does not load the index of the search.
    assert "offline" in site["plugins"]
    # Else the plug-in loads this script from another host.
    (script,) = site["extra"]["polyfills"]
    assert "iframe-worker" in script
    assert (ROOT / "docs" / script).is_file()


@pytest.mark.parametrize("name", ["settings.md", "commands.md"])
def test_reference_pages_are_those_of_the_code(name: str) -> None:
    pages = runpy.run_path(str(ROOT / "scripts" / "reference_pages.py"))["PAGES"]

    assert text(name) == pages[name](), "run: python scripts/reference_pages.py"


def test_every_public_name_is_in_the_reference() -> None:
    described = "".join(page.read_text() for page in sorted((ROOT / "docs" / "api").glob("*.md")))
    names = set(re.findall(r"^::: [\w.]+\.(\w+)$", described, re.MULTILINE))
    errors = {name for name in ancl.__all__ if name.endswith("Error")}  # with their module

    modules = {"data", "errors", "extend"}
    assert names >= {*ancl.__all__, *ancl.extend.__all__} - errors - modules


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """One epoch and one process, whatever a page says."""

    def with_little(function: Any, little: dict[str, Any]) -> Any:
        def call(*values: Any, workers: int = 1, **named: Any) -> Any:
            named["settings"] = {**named.get("settings", {}), **little}
            return function(*values, **named)

        return call

    for name in ("spec", "specs", "compare", "search", "analyze", "teach"):
        machine = {} if name == "teach" else {"threads": 1}
        little = with_little(getattr(ancl, name), {"training.epochs": 1, **machine})
        monkeypatch.setattr(ancl, name, little)
    run = ancl.run
    monkeypatch.setattr(ancl, "run", lambda *what, workers=1, **named: run(*what, **named))


def own_photos() -> dict[str, Any]:
    """What a page calls the reader's own images and labels."""
    samples = digits().train
    early = [place for place, label in enumerate(samples.y.tolist()) if label < 5][::5]
    late = [place for place, label in enumerate(samples.y.tolist()) if label >= 5][::5]
    return {
        "images": samples.x[early],
        "labels": samples.y[early].tolist(),
        "more_images": samples.x[late],
        "new_labels": samples.y[late].tolist(),
        "photos": samples.x[:3],
    }


def test_the_first_run_as_written(folder, brief, capsys) -> None:
    names: dict[str, Any] = {}
    for block in blocks("first-run.md"):
        exec(block, names)

    assert names["plain"].matrices["taw"].shape == (5, 5)
    assert names["variant"].spec.options["lamb_a"] == "balance:0.1"
    assert "[[" in capsys.readouterr().out


def test_own_images_and_network_as_written(folder, brief, write, write_digits, capsys) -> None:
    write_digits(folder / "photos", dict(zip("abcdef", range(6), strict=True)), "train", each=10)
    (python,) = write("own-images-and-network.md")
    names: dict[str, Any] = {}
    exec(python, names)

    assert names["taught"].learner.classes == list("abcdef")
    assert type(names["taught"].learner.module.network.backbone).__name__ == "Small"


def test_search_as_written(folder, brief, capsys) -> None:
    first, second = blocks("search.md")
    names: dict[str, Any] = {}
    exec(first, names)
    exec(second, names)

    assert len(names["results"]) == 3
    assert set(names["found"].chosen) == {"lamb", "lamb_a"}
    assert len(names["runs"]) == 3


def test_analyses_as_written(folder, brief, capsys) -> None:
    block, own_networks = blocks("analysis.md")
    names: dict[str, Any] = {}
    exec(block, names)

    assert len(names["result"].rows("cka", network="ancl", layer="mean")) == 4
    assert "Estimate" in capsys.readouterr().out
    exec(own_networks, names)
    assert "(2, 2) (2,)" in capsys.readouterr().out
    assert names["main"].head.sizes == names["auxiliary"].head.sizes


def test_a_report_as_written(folder, brief, capsys) -> None:
    ancl.run(ancl.spec("finetune", "digits/5"))
    names: dict[str, Any] = {}
    for block in blocks("report.md"):
        exec(block, names)

    assert names["result"].page == Path("out/report.html")
    assert "Fine-tuning" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:The weights of efficientnet_lite0 were trained on images")
def test_the_readme_as_written(folder, brief, monkeypatch, capsys) -> None:
    learner = functools.partial(ancl.Learner, size=32, verbose=False)  # in place of 224
    learner.load = ancl.Learner.load  # type: ignore[attr-defined]
    monkeypatch.setattr(ancl, "Learner", learner)
    names = own_photos()
    for block in blocks(ROOT / "README.md"):
        exec(block, names)

    assert set(names["found"].chosen) == {"lamb", "lamb_a"}
    assert names["page"] == Path("runs/report/report.html")
    assert names["learner"].classes == list(range(10))
    assert "held images" in capsys.readouterr().out


def test_domains_as_written(brief) -> None:
    samples = own_photos()
    names: dict[str, Any] = {"ancl": ancl, "photos": samples["photos"]}
    names |= {"photos_by_day": samples["images"], "photos_by_night": 255 - samples["images"]}
    names |= {"labels": samples["labels"], "labels_by_night": samples["labels"]}
    (block,) = blocks("data.md")
    training = "training=ancl.Training(epochs=5, batch_size=32), "
    exec(block.replace("lamb=100.0", f'network="mlp", {training}lamb=100.0'), names)

    learner = names["learner"]
    assert learner.tasks == [list(range(5))] * 2
    assert set(learner.predict(names["photos"])) <= set(range(5))
    assert learner.evaluate(names["photos_by_night"], names["labels_by_night"]) > 0.5


def test_the_examples_page_shows_every_script() -> None:
    shown = re.findall(r'^--8<-- "(examples/\w+\.py)"$', text("examples.md"), re.MULTILINE)

    scripts = (ROOT / "examples").glob("*.py")
    assert sorted(shown) == sorted(f"examples/{script.name}" for script in scripts)


TESTED = {
    *("add-a-data-set", "add-a-method", "add-a-network", "add-a-stage", "add-an-analysis"),
    *("adapters", "add-an-executor", "backbones", "engineers", "first-run", "learner"),
    *("own-images-and-network", "search", "report", "data", "analysis"),
    "notebook",  # tests/system/test_notebook.py
    "avalanche",  # tests/integrations/test_avalanche_itself.py
    "README",
}


def test_no_block_is_left_out() -> None:
    assert {page.stem for page in PAGES if blocks(page)} == TESTED
