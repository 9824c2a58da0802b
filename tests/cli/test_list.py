from typing import Any

from tests.lab import BENCHMARKS, METHODS, NETWORKS, SOURCES


def test_methods_with_their_variants_and_why_one_is_refused(ancl: Any) -> None:
    found = {each["name"]: each for each in ancl("list", "methods", "--json").json["methods"]}
    text = ancl("list", "methods").out

    assert list(found) == list(METHODS)
    assert found["lwf"]["variants"] == {"a": {"name": "a-lwf"}, "afec": {"name": "afec-lwf"}}
    assert "has no regularizer" in found["finetune"]["variants"]["a"]["refused"]
    assert "a-finetune: 'finetune' has no regularizer" in text
    assert "a-lwf" in text


def test_options_of_a_method_come_from_its_own_signature(ancl: Any) -> None:
    found = ancl("list", "methods", "--options", "a-lwf", "--json").json
    settings = {each["key"]: each for each in found["settings"]}
    text = ancl("list", "methods", "--options", "a-lwf").out

    assert next(iter(settings)) == "lamb"
    assert settings["lamb_a"]["type"] == "number ≥ 0 or balance:ρ"
    assert settings["lamb_a"]["default"] == "balance:0.1"
    assert settings["temperature"]["explanation"].startswith("T, by which")
    assert settings["data.scenario"]["type"] == "til | cil | dil | cir"
    assert settings["data.val_fraction"]["type"] == "number ≥ 0 and < 1"
    assert settings["network.width"]["default"] == 16
    assert "lamb_a (λ_a)" in text
    assert "but for auxiliary.weight_decay=0.0005." in text


def test_options_come_with_the_differences_from_other_implementations(ancl: Any) -> None:
    found = ancl("list", "methods", "--options", "afec-bic", "--json").json["differences"]
    text = ancl("list", "methods", "--options", "afec-bic").out

    students = [each for each in found if each["settings"] == {"correct_student": True}]
    assert [each["whose"] for each in students] == [["FACIL"]]
    assert "act on the old network (as in the original). --set correct_student=true" in text
    assert "--set bias_milestones=[]" in text
    assert "No setting gives theirs." in text
    assert "AFEC code" in text


def test_benchmarks_data_and_networks_are_all_listed(ancl: Any) -> None:
    for kind, names in (("benchmarks", BENCHMARKS), ("data", SOURCES), ("networks", NETWORKS)):
        found = ancl("list", kind, "--json").json
        text = ancl("list", kind).out

        assert [each["name"] for each in found[kind]] == list(names)
        assert all(f"\n{name} " in text for name in names)


def test_networks_show_their_options(ancl: Any) -> None:
    found = {
        each["name"]: each["options"]
        for each in ancl("list", "networks", "--json").json["networks"]
    }

    assert found["mlp"] == {"hidden": [256, 256]}
    assert "network.last_relu=true" in ancl("list", "networks").out


def test_an_unknown_method_is_told(ancl: Any) -> None:
    ended = ancl("list", "methods", "--options", "lwff")

    assert ended.code == 2
    assert "Did you mean 'lwf'?" in ended.err


def test_benchmarks_show_the_papers_numbers(ancl: Any) -> None:
    found = {each["name"]: each for each in ancl("list", "benchmarks", "--json").json["benchmarks"]}
    text = ancl("list", "benchmarks").out

    numbers = {each["method"]: each for each in found["tinyimagenet/10"]["paper"]}
    assert (numbers["a-lwf"]["metric"], round(numbers["a-lwf"]["mean"], 4)) == ("aac", 0.6096)
    assert found["cifar100/10"]["sources"]["training.epochs"] == "paper"
    assert found["digits/5"]["paper"] == []
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "a-lwf 55.90 ± 0.29 79.42 ± 0.57 79.99 ± 0.59 60.96 ± 0.76 63.79 ± 0.41" in lines
