import json
from pathlib import Path
from typing import Any

import pytest

BAD = """\
method: a-lwf
benchmark: digits/5
training:
  epoch: 3
  lr: fast
options:
  temper: 2
"""


def test_all_mistakes_are_told_together_with_their_places(ancl: Any) -> None:
    Path("bad.yaml").write_text(BAD)

    ended = ancl("run", "--config", "bad.yaml", "--set", "foo", "--lamb", "abc", "--seeds", "3-1")
    lines = ended.err.splitlines()

    assert (ended.code, ended.out) == (2, "")
    assert [line.split(": ")[0] for line in lines] == [
        "--set",
        "--seeds",
        "bad.yaml:4",
        "bad.yaml:5",
        "bad.yaml:7",
        "--lamb",
    ]
    assert "Did you mean 'epochs'?" in lines[2]
    assert "Did you mean 'temperature'?" in lines[4]
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("lambda", "lamb"),
        ("lam", "lamb"),
        ("reg_lambda", "lamb"),
        ("λ", "lamb"),
        ("lamb-a", "lamb_a"),
        ("lambda_a", "lamb_a"),
        ("λ_a", "lamb_a"),
    ],
)
def test_every_other_spelling_of_lambda_is_told_its_name(ancl: Any, given: str, meant: str) -> None:
    ended = ancl("run", "a-lwf", "digits/5", "--set", f"{given}=1")

    assert ended.code == 2
    assert f"a-lwf has no setting {given!r}. Did you mean {meant!r}?" in ended.err


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("lr", "training.lr"),
        ("epochs", "training.epochs"),
        ("batch_size", "training.batch_size"),
        ("total", "memory.total"),
        ("scenario", "data.scenario"),
    ],
)
def test_a_setting_without_its_section_is_told_the_whole_name(
    ancl: Any, given: str, meant: str
) -> None:
    ended = ancl("run", "a-lwf", "digits/5", "--set", f"{given}=1")

    assert ended.code == 2
    assert f"a-lwf has no setting {given!r}. Did you mean {meant!r}?" in ended.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data:\n  tasks: 5\n  tasks: 2\n", "c.yaml:3: data.tasks is given twice."),
        ("lamb: 1\noptions:\n  lamb: 2\n", "c.yaml:3: lamb is given twice."),
        ("data: [\nfoo: 2", "c.yaml:2: this is not YAML"),
        ("- 1\n", "c.yaml:1: this is a list or text."),
        (
            "seed: 1\ntrainng:\n  epochs: 5\n",
            "c.yaml:2: There is no section 'trainng'. Did you mean",
        ),
        ("data: 3\n", "c.yaml:1: data is 3; it must be a section"),
    ],
)
def test_a_bad_file_is_told_with_the_line(ancl: Any, text: str, message: str) -> None:
    Path("c.yaml").write_text(text)

    ended = ancl("run", "lwf", "digits/5", "--config", "c.yaml")

    assert ended.code == 2
    assert ended.err.startswith(message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lwf"], "A BENCHMARK is missing."),
        ([], "A METHOD is missing."),
        (["lwf", "--data", "digits"], "The split needs either"),
        (["lwf", "--data", "no.py:x", "--tasks", "2"], "There is no file no.py."),
        (["lwf", "digits/5", "--set", "network.name=no.py:x"], "There is no file no.py."),
        (["lwff", "digits/5"], "There is no method 'lwff'. Did you mean 'lwf'?"),
        (["lwf", "digits5"], "There is no benchmark 'digits5'. Did you mean 'digits/5'?"),
        (["lwf", "digits/5", "--config", "no.yaml"], "--config: no.yaml cannot be read"),
        (["lwf", "digits/5", "--lamb-a", "1"], "--lamb-a: lwf has no setting 'lamb_a'."),
        (["lwf", "digits/5", "--tasks", "2", "--classes", "5x2"], "The split needs either"),
        (["lwf", "digits/5", "--seed", "1", "--seeds", "2"], "--seed and --seeds were both given."),
        (["lwf", "digits/5", "--seed", "-1"], "--seed: seed is -1; it must be greater"),
        (["lwf", "digits/5", "--runs", "file"], "The store file/.store is not writable"),
        (
            ["lwf", "digits/5", "--runs", "file", "--store", "s"],
            "Results cannot be written to file",
        ),
    ],
)
def test_a_mistake_is_a_message_and_exit_code_2(
    ancl: Any, arguments: list[str], message: str
) -> None:
    Path("file").write_text("in the way")

    plain, as_json = ancl("run", *arguments), ancl("run", *arguments, "--json")

    assert (plain.code, plain.out) == (2, "")
    assert plain.err.startswith(message)
    assert "Traceback" not in plain.err
    assert as_json.code == 2
    assert json.loads(as_json.out) == {"error": plain.err.strip()}


def test_an_unknown_flag_exits_with_2(ancl: Any) -> None:
    ended = ancl("run", "lwf", "digits/5", "--lambda", "1")

    assert ended.code == 2
    assert "--lamb" in ended.err
