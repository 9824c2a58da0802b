"""``ancl.forget`` that is killed at every write, and beside others: the old learner or the new."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.lab import program

# Every event that changes the disk is a place to die at; processes are forked, which is quick.
PROGRAM = program("""
import json, os, shutil, sys, warnings
from pathlib import Path
warnings.simplefilter("ignore")
import torch
torch.set_num_threads(1)
import ancl
from ancl import Events, Learner

WRITES = ("os.rename", "os.remove", "os.rmdir", "os.link", "os.mkdir", "os.truncate")
vectors = torch.randn(60, 6, generator=torch.Generator().manual_seed(1))
labels = [f"class {n % 3}" for n in range(60)]
made = Learner("ncm", "features", grid=11, store="store")
for start in (0, 30):
    ids = [f"photo {n}.jpg" for n in range(start, start + 30)]
    made.learn(vectors[start : start + 30], labels[start : start + 30], ids=ids)
    made.save("before")

def fresh():
    for place in ("L", ".L.learning", "stored"):
        shutil.rmtree(place, ignore_errors=True)
    for left in Path(".").glob(".L.*"):
        shutil.rmtree(left, ignore_errors=True)
    shutil.copytree("before", "L")

def names():
    kept = [Learner.load("L", version=version.number) for version in ancl.versions("L")]
    return {image.id for learner in kept for image in learner.images}

def forked(work):
    child = os.fork()
    if not child:
        try:
            work()
            os._exit(0)
        except ancl.AnclError as error:
            print(error, file=sys.stderr)
            os._exit(2)
        finally:
            os._exit(99)
    return child

def ended(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def forget():
    ancl.forget("L", ids=["photo 7.jpg"], events=Events())

def dies_at(place):
    count = 0
    def hook(event, args):
        nonlocal count
        writes = event in WRITES or (event == "open" and args[2] and args[2] & os.O_CREAT)
        count += bool(writes)
        if count == place:
            os._exit(9)
    sys.addaudithook(hook)

def killed(place):
    fresh()
    code = ended(forked(lambda: (dies_at(place), forget())))
    state = ["photo 7.jpg" in names(), [v.number for v in ancl.versions("L")]]
    again = ended(forked(forget))  # which also removes what the killed one left
    left = [str(f) for f in Path(".").rglob("*") if f.is_file() and f.parts[0] not in ("before",)
            and b"photo 7.jpg" in f.read_bytes()]
    return code, state, again, "photo 7.jpg" in names(), left

if sys.argv[1] == "killed":
    place, codes = 1, []
    while True:
        told = killed(place)
        print(json.dumps(told), flush=True)
        if told[0] == 0:
            break
        place += 3
else:
    fresh()
    works = [forget, lambda: ancl.rename("L", {"class 1": "robin"}, events=Events()),
             lambda: ancl.forget("L", ids=["photo 8.jpg"], events=Events())]
    codes = [ended(child) for child in [forked(work) for work in works]]
    kinds = sorted(v.kind for v in ancl.versions("L"))
    print(json.dumps([codes, kinds, sorted(Learner.load("L").classes), sorted(
        {"photo 7.jpg", "photo 8.jpg"} & names())]))
""")


def told(what: str, folder: Path) -> list[Any]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, what],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.timeout(300)
def test_killed_at_any_write_it_leaves_the_old_learner_or_the_new(tmp_path: Path) -> None:
    ends = told("killed", tmp_path)

    assert len(ends) > 5
    for code, (there, numbers), again, after, left in ends:
        assert code in (0, 9)
        assert numbers == ([1, 2] if there else [1, 2, 3])
        assert (again, after, left) == (0 if there else 2, False, [])
    assert {there for _, (there, _), *_ in ends} == {True, False}  # some before, some after


def test_at_once_all_of_them_are_done(tmp_path: Path) -> None:
    ((codes, kinds, classes, left),) = told("at once", tmp_path)

    assert codes == [0, 0, 0]
    assert kinds == ["forget", "forget", "learn", "learn", "rename"]
    assert classes == ["class 0", "class 2", "robin"]
    assert left == []
