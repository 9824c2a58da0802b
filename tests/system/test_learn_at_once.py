"""Several ``ancl learn`` on one learner at the same time, some of them killed: no month is lost.

The long test is marked slow; its moments are set from outside: ``ANCL_KILL_SEED=7``.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from ancl import Events, Learner, StoreError, teach, versions
from tests.lab import program

# Imported once and forked for every command: most of a short command's time are its imports.
PROGRAM = program("""
import json, os, sys
import torch
import ancl; [getattr(ancl, name) for name in ancl.__all__]
import safetensors.torch
from tests.lab import main
torch.set_num_threads(1)

def command(words):
    said = os.open(f"said-{os.getpid()}", os.O_WRONLY | os.O_CREAT)
    os.dup2(said, 1), os.dup2(said, 2)
    sys.argv = ["ancl", *words]
    try:
        main()
    except SystemExit as end:
        return end.code or 0
    return 0

for line in sys.stdin:
    folder, commands = json.loads(line)
    os.chdir(folder)
    children = []
    for words in commands:
        children.append(os.fork())
        if not children[-1]:
            code = 99
            try:
                code = command(words)
            finally:
                sys.stdout.flush(), sys.stderr.flush()
                os._exit(code)
    print(json.dumps(children), flush=True)
    codes = {child: os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children}
    print(json.dumps([codes[child] for child in children]), flush=True)
""")
MONTHS = {f"m{n}": (f"c{n}a", f"c{n}b") for n in range(6)}
SETTINGS = ("--method", "lwf", "--network", "mlp", "--epochs", "1", "--set", "network.hidden=[8]")
BEGIN = ("--data", "folder:m0", *SETTINGS, "--threads", "1", "--quiet")


class Ended(NamedTuple):
    code: int
    said: str


class Commands:
    """Starts commands at once in a folder."""

    def __init__(self) -> None:
        self.program = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, folder: Path, commands: Sequence[Sequence[str]]) -> list[int]:
        assert self.program.stdin is not None
        self.program.stdin.write(json.dumps([str(folder), [[*words] for words in commands]]) + "\n")
        self.program.stdin.flush()
        return self.answer()

    def answer(self) -> list[int]:
        assert self.program.stdout is not None
        found: list[int] = json.loads(self.program.stdout.readline())
        return found

    def run(self, folder: Path, commands: Sequence[Sequence[str]]) -> list[Ended]:
        """Each command's exit code, and what it said."""
        pids = self.start(folder, commands)
        said = [folder / f"said-{pid}" for pid in pids]
        return [
            Ended(code, file.read_text()) for code, file in zip(self.answer(), said, strict=True)
        ]


@pytest.fixture(scope="module")
def commands() -> Iterator[Commands]:
    started = Commands()
    with started.program as program:  # which closes its pipes
        yield started
        program.kill()


@pytest.fixture(scope="module")
def begun(commands: Commands, tmp_path_factory, write_digits: Callable[..., str]) -> Path:
    """Six months of images, and a learner of the first."""
    place: Path = tmp_path_factory.mktemp("begun")
    for number, (month, classes) in enumerate(MONTHS.items()):
        digit_of = {name: (2 * number + at) % 10 for at, name in enumerate(classes)}
        write_digits(place / month, digit_of, each=6, skip=6 * (number // 5))
    (ended,) = commands.run(place, [("learn", "L", *BEGIN)])
    assert ended.code == 0, ended.said
    return place


@pytest.fixture
def place(begun: Path, tmp_path: Path) -> Path:
    shutil.copytree(begun, tmp_path / "place")
    return tmp_path / "place"


def month(name: str, *more: str, learner: str = "L") -> tuple[str, ...]:
    return ("learn", learner, "--data", f"folder:{name}", "--threads", "1", "--quiet", *more)


def learned(place: Path, learner: str = "L") -> list[list[str]]:
    return [[*map(str, task)] for task in Learner.load(place / learner, events=Events()).tasks]


def check_nothing_is_left(place: Path) -> None:
    assert [path.name for path in place.glob(".*")] == []


def test_the_second_command_learns_on_from_what_the_first_left(
    commands: Commands, place: Path
) -> None:
    ended = commands.run(place, [month("m1"), month("m2"), month("m1")])

    assert [each.code for each in ended] == [0, 0, 0], ended
    tasks = learned(place)
    assert tasks[0] == [*MONTHS["m0"]]
    assert sorted(tasks[1:]) == [[*MONTHS["m1"]], [*MONTHS["m2"]]]
    waited = [each.said for each in ended if "Waiting: L is being changed by process" in each.said]
    assert waited
    assert all(said.count("Waiting") == 1 for said in waited)
    assert all(f" on {os.uname().nodename}, since 2" in said for said in waited)
    again = [each.said for each in ended if "learned exactly these images before" in each.said]
    assert len(again) == 1
    assert [(v.number, v.parent) for v in versions(place / "L")] == [(1, None), (2, 1), (3, 2)]
    check_nothing_is_left(place)


def test_of_two_that_begin_a_learner_one_is_refused(commands: Commands, place: Path) -> None:
    words = ("--threads", "1", "--quiet", *SETTINGS)
    ended = commands.run(
        place, [("learn", "new", "--data", f"folder:{name}", *words) for name in ("m1", "m2")]
    )

    assert sorted(each.code for each in ended) == [0, 2]
    first = ended.index(next(each for each in ended if each.code == 0))
    assert "new keeps the settings that it began with" in ended[1 - first].said
    assert learned(place, "new") == [[*MONTHS[("m1", "m2")[first]]]]
    check_nothing_is_left(place)


def test_the_same_images_with_other_labels_are_refused(commands: Commands, place: Path) -> None:
    (place / "other").mkdir()
    for old, new in zip(MONTHS["m0"], ("x", "y"), strict=True):
        shutil.copytree(place / "m0" / old, place / "other" / new)

    (ended,) = commands.run(place, [month("other")])

    assert ended.code == 2
    assert "The same image has two labels:\nm0/c0a/" in ended.said
    assert "learned in task 1 is 'c0a', and other/x/" in ended.said
    assert learned(place) == [[*MONTHS["m0"]]]
    check_nothing_is_left(place)


def test_who_does_not_wait_says_who_is_at_work(commands: Commands, place: Path) -> None:
    from tests.lab import claimed

    with claimed(place / "L", print):
        (ended,) = commands.run(place, [month("m1", "--wait", "0.1")])
        with pytest.raises(StoreError, match=rf"process {os.getpid()} on .*, since .* waited 0 s"):
            teach(place / "L", f"folder:{place / 'm1'}", wait=0)

    assert ended.code == 2
    assert f"L is being changed by process {os.getpid()} on " in ended.said
    assert "waited 0.1 s. Nothing was done." in ended.said
    assert learned(place) == [[*MONTHS["m0"]]]


def check_versions(place: Path, count: int) -> None:
    """Every month is a version of the one before, whole; the learner holds nothing else."""
    kept = versions(place / "L")
    assert [(v.number, v.parent) for v in kept] == [(n + 1, n or None) for n in range(count)]
    for version in kept:
        learner = Learner.load(place / "L", version=version.number, events=Events())
        assert len(learner.tasks) == version.number
    used = {name for version in kept for name in version.parts.values()}
    there = [file.name for file in (place / "L" / "parts").iterdir()]
    assert {name for name in there if name.endswith(".safetensors")} == used
    assert len(there) == len(used) + count


class Round:
    """Commands at once on one learner, some of them killed, and given again."""

    def __init__(self, commands: Commands, place: Path, randomness: random.Random) -> None:
        self.commands, self.place, self.random = commands, place, randomness

    def run(self, count: int, longest: float) -> Counter[str]:
        """How many commands were killed, and how many of their months were there all the same."""
        names = self.random.sample([*MONTHS][1:], count)
        pids = self.commands.start(self.place, [month(name) for name in names])
        for moment, pid in sorted(
            (self.random.uniform(0, longest), pid)
            for pid in self.random.sample(pids, self.random.randint(1, count - 1))
        ):
            time.sleep(moment / count)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        codes = dict(zip(names, self.commands.answer(), strict=True))
        assert set(codes.values()) <= {0, -signal.SIGKILL}, codes
        there = self.months()
        killed = [name for name, code in codes.items() if code]
        for name, code in codes.items():
            assert there[name] == 1 if code == 0 else there[name] <= 1, (codes, there)
        assert set(there) <= {"m0", *names}
        # Given again, each is learned, or was learned before its command was killed.
        ended = self.commands.run(self.place, [month(name) for name in killed])
        assert all(each.code == 0 for each in ended), ended
        assert self.months() == Counter(["m0", *names])
        check_nothing_is_left(self.place)
        check_versions(self.place, count + 1)
        return Counter(killed=len(killed), saved=sum(there[name] for name in killed))

    def months(self) -> Counter[str]:
        of = {classes: name for name, classes in MONTHS.items()}
        return Counter(of[tuple(task)] for task in learned(self.place))  # type: ignore[index]


@pytest.mark.timeout(120)
def test_no_month_is_lost_while_commands_are_killed(commands: Commands, place: Path) -> None:
    found = Round(commands, place, random.Random(3)).run(3, longest=0.6)
    assert found["killed"] >= 1


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_month_is_lost_in_fifty_rounds(commands: Commands, begun: Path, tmp_path: Path) -> None:
    seed = int(os.environ.get("ANCL_KILL_SEED", random.randrange(1_000_000)))
    randomness, total = random.Random(seed), Counter[str]()
    for number in range(50):
        count = (2, 3, 5)[number % 3]
        shutil.copytree(begun, tmp_path / f"{number}")
        total += Round(commands, tmp_path / f"{number}", randomness).run(count, longest=1.5)
        total["commands"] += count
    print(f"ANCL_KILL_SEED={seed}: {dict(total)}", flush=True)
    assert total["killed"] >= 20
