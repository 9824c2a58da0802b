"""Flags and settings of the memory, and what is refused together with other mistakes."""

from typing import Any

import pytest


def memory(ended: Any) -> dict[str, tuple[Any, str]]:
    found = ended.json["runs"][0]["settings"]
    keys = ("per_class", "total", "selection")
    return {
        key: (found[f"memory.{key}"]["value"], found[f"memory.{key}"]["source"]) for key in keys
    }


def dry(ancl: Any, *arguments: str) -> Any:
    return ancl("run", *arguments, "--scenario", "cil", "--dry-run", "--json")


def test_a_method_says_what_it_keeps_and_a_flag_says_otherwise(ancl: Any) -> None:
    icarl = memory(dry(ancl, "icarl", "digits/5"))
    total = memory(dry(ancl, "icarl", "digits/5", "--memory", "100"))
    per_class = memory(dry(ancl, "ewc", "digits/5", "--memory-per-class", "7"))
    rule = memory(dry(ancl, "icarl", "digits/5", "--memory-selection", "random"))

    assert icarl["per_class"] == (20, "default")
    assert (total["per_class"], total["total"]) == ((None, "--memory"), (100, "--memory"))
    assert per_class["per_class"] == (7, "--memory-per-class")
    assert memory(dry(ancl, "ewc", "digits/5"))["per_class"] == (None, "default")
    assert (rule["per_class"], rule["selection"]) == (
        (20, "default"),
        ("random", "--memory-selection"),
    )


def test_cosine_classifiers_read_features_of_both_signs(ancl: Any) -> None:
    arguments = ("digits/5", "--set", "network.name=resnet8")
    found = dry(ancl, "lucir", *arguments).json["runs"][0]["settings"]
    asked = dry(ancl, "lucir", *arguments, "--set", "network.last_relu=true")
    icarl = dry(ancl, "icarl", *arguments).json["runs"][0]["settings"]

    assert found["network.last_relu"]["value"] is False
    assert asked.json["runs"][0]["settings"]["network.last_relu"]["value"] is True
    assert icarl["network.last_relu"]["value"] is True
    assert dry(ancl, "podnet", "digits/5").json["runs"][0]["settings"]["network.name"] == {
        "value": "resnet8",
        "source": "benchmark digits/5",
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["icarl", "--memory", "9"], "A memory of 9 images cannot keep one of each of 10 classes."),
        (
            ["icarl", "--memory", "99", "--memory-per-class", "9"],
            "memory.per_class and memory.total are both given.",
        ),
        (["bic", "--memory-per-class", "1"], "bic validates on a part of the memory"),
        (["bic", "--set", "memory.per_class=null"], "bic has a stage that reads exemplars (bias)"),
        (["icarl", "--memory-selection", "best"], "--memory-selection: memory.selection is 'best'"),
        (["icarl", "--set", "memory.size=3"], "--set: memory has no setting 'size'."),
    ],
)
def test_a_memory_that_does_not_fit_is_told(ancl: Any, arguments: list[str], message: str) -> None:
    ended = ancl("run", arguments[0], "digits/5", *arguments[1:], "--scenario", "cil")

    assert ended.code == 2
    assert ended.err.startswith(message)


COMMANDS = {
    "compare": ("lwf", "--on", "digits/5"),
    "search": ("lwf", "digits/5", "--lamb-grid", "1"),
    "analyze": ("lwf", "digits/5", "--lamb-a", "1", "--grid", "0"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_trains_takes_a_memory(ancl: Any, command: str) -> None:
    def stages(*flags: str) -> int:
        found = ancl(command, *COMMANDS[command], *flags, "--dry-run", "--json").json["stages"]
        return int(found)

    wrong = ancl(command, *COMMANDS[command], "--memory-per-class", "no", "--memory", "0")

    # Of an analysis the first task's memory alone is read; elsewhere each of 5 tasks keeps one.
    more = 1 if command == "analyze" else 5
    assert stages("--memory-per-class", "5") == stages() + more
    assert stages("--memory", "50", "--memory-selection", "random") == stages() + more
    assert wrong.code == 2
    assert wrong.err.startswith("--memory-per-class: memory.per_class is 'no'; it must be a valid")
    assert "\n--memory: memory.total is 0; it must be greater" in wrong.err


def test_a_scenario_without_meaning_is_told_with_the_other_mistakes(ancl: Any) -> None:
    domains = ("--scenario", "dil", "--set", "data.domains=rotation", "--tasks", "3")
    ended = ancl("run", "bic", "digits/5", *domains, "--set", "training.schedule=multistep")

    assert ended.code == 2
    lines = ended.err.splitlines()
    assert "bic has no meaning in the scenario dil" in ended.err
    assert any("milestones" in line for line in lines)


def test_with_a_memory_no_collapse_is_warned_of(ancl: Any) -> None:
    arguments = ("digits/5", "--scenario", "cil", "--epochs", "1", "--quiet", "--json")

    with_memory = ancl("run", "ewc", *arguments, "--memory-per-class", "5")
    without = ancl("run", "ewc", *arguments)

    assert with_memory.code == without.code == 0
    assert "expected to collapse" in without.err
    assert with_memory.err == ""


def test_the_list_names_what_the_paper_does_not_have(ancl: Any) -> None:
    text = ancl("list", "methods").out
    options = ancl("list", "methods", "--options", "bic", "--json").json["settings"]
    shown = {each["key"]: each for each in options}

    line = next(line for line in text.splitlines() if "extensions" in line)
    assert "a-eeil" in line
    assert "a-wa" in line
    assert "a-lucir" not in line
    assert shown["memory.per_class"]["default"] == 20
    assert shown["lamb"]["type"] == "number ≥ 0 or convex or auto[:κ]"
