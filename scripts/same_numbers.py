"""Whether two commits compute the same numbers, to the bit, on this machine.

    python scripts/same_numbers.py COMMIT                # COMMIT against the working tree
    python scripts/same_numbers.py COMMIT COMMIT         # two commits
    python scripts/same_numbers.py --record FILE COMMIT  # keep the hashes of a commit ...
    python scripts/same_numbers.py --against FILE        # ... and compare the working tree

Both trees do the same tiny jobs in processes of their own, with the packages of this interpreter.
The jobs use the command line alone, and what it leaves on disk is compared: keys, tensors by name
and raw bytes, and JSON without the times in it. So names inside the package may change between
the two.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir, redirect_stderr, redirect_stdout
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from same_numbers_jobs import Job, all_jobs, write_inputs

ROOT = Path(__file__).resolve().parents[1]
BATCHES = 6
WORKING_TREE = "the working tree"
CHANGES_EACH_TIME = {"seconds", "began", "directory", "runs_dir", "report", "page", "figures"}
"""Names in JSON of what is not a number of the method: times, and where files are."""

Items = dict[str, dict[str, list[str]]]
"""Hashes of one job: by where they belong (a stage, an output), by what they are of."""


# -- what a job left behind ------------------------------------------------------------------


def sha(content: bytes) -> str:
    """A hash, short enough to read."""
    return hashlib.sha256(content).hexdigest()[:16]


def lasting(value: Any) -> Any:
    """JSON without what changes each time."""
    if isinstance(value, Mapping):
        return {k: lasting(v) for k, v in value.items() if k not in CHANGES_EACH_TIME}
    return [lasting(item) for item in value] if isinstance(value, list) else value


def json_hash(value: Any) -> str:
    """The hash of JSON without what changes each time; its numbers are exact."""
    return sha(json.dumps(lasting(value), sort_keys=True).encode())


def tensor_hashes(file: Path) -> dict[str, str]:
    """The hash of every tensor of a safetensors file: its type, shape and raw bytes."""
    content = file.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header.pop("__metadata__", None)
    found = {}
    for name, tensor in header.items():
        begin, end = tensor["data_offsets"]
        kind = f"{tensor['dtype']} {tensor['shape']} ".encode()
        found[name] = sha(kind + content[start + begin : start + end])
    return found


def entry_hashes(directory: Path) -> tuple[str, dict[str, str]]:
    """What a stored entry is of, and its hashes: the key, every tensor, every part of its JSON."""
    header = json.loads((directory / "entry.json").read_text())
    meta = header["meta"]
    if "versions" in meta:
        return directory.name, learner_hashes(directory, meta)
    of_stage = "stage" in meta and "task" in meta
    where = f"task {meta['task']} {meta['stage']}" if of_stage else directory.name
    hashes = {"key": header["key"]}
    for file in sorted(directory.glob("*.safetensors")):
        hashes |= {f"tensor {name}": value for name, value in tensor_hashes(file).items()}
    hashes |= {n: json_hash(v) for n, v in meta.items() if n not in CHANGES_EACH_TIME}
    return where, hashes


def learner_hashes(directory: Path, meta: Mapping[str, Any]) -> dict[str, str]:
    """The hashes of a learner's current version: every tensor, every part of its JSON."""
    documents = [json.loads((directory / "parts" / name).read_text()) for name in meta["versions"]]
    (version,) = [each for each in documents if each["number"] == meta["current"]]
    hashes = {"key": directory.name}
    for part, file in sorted(version["parts"].items()):
        if not part.startswith("images of task"):  # files have the names of a directory
            for name, value in tensor_hashes(directory / "parts" / file).items():
                hashes[f"tensor {part}/{name}"] = value
    return hashes | {name: json_hash(value) for name, value in version["learner"].items()}


def output_hashes(output: Any) -> Iterator[tuple[str, str]]:
    """The hashes of a command's JSON: of every part, and of every part of each run."""
    if not isinstance(output, dict):
        yield "all", json_hash(output)
        return
    for name, value in output.items():
        if name == "runs" and isinstance(value, list):
            for run in value:
                yield from ((f"run's {part}", each) for part, each in output_hashes(run))
        elif name not in CHANGES_EACH_TIME:
            yield name, json_hash(value)


def directory_hashes(root: Path) -> Iterator[tuple[str, str, str]]:
    """Where, what and hash of everything that commands wrote below a directory."""
    for header in sorted(root.rglob("entry.json")):
        where, hashes = entry_hashes(header.parent)
        yield from ((where, what, value) for what, value in hashes.items())
    for file in sorted(root.rglob("*.csv")):
        yield "run directory", file.name, sha(file.read_bytes())
    for file in sorted(root.rglob("log.jsonl")):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        yield "run directory", file.name, json_hash(lines)
    for file in sorted(root.rglob("spec.yaml")):
        yield "run directory", "hash of the spec", file.parent.name


# -- doing the jobs, in a process of one tree ------------------------------------------------


def command_of(tree: Path) -> Any:
    """The function behind ``ancl`` of a tree; it must come from that tree."""
    script = tomllib.loads((tree / "pyproject.toml").read_text())["project"]["scripts"]["ancl"]
    module, _, name = script.partition(":")
    found = getattr(import_module(module), name)
    origin = Path(sys.modules[module.partition(".")[0]].__file__ or "")
    if not origin.is_relative_to(tree):
        raise SystemExit(f"{origin} was imported, which is not below {tree}.")
    return found


def call(start: Any, words: Sequence[str]) -> tuple[int | str, str, str]:
    """Run a command in this process: its exit code, or its bug, and what it wrote."""
    out, err = io.StringIO(), io.StringIO()
    sys.argv = ["ancl", *words]
    with redirect_stdout(out), redirect_stderr(err):
        try:
            start()
            code: Any = 0
        except SystemExit as end:
            code = end.code or 0
        except Exception as error:  # a bug of one tree is a difference, no end
            code = f"{type(error).__name__}: {error}"
    return code, out.getvalue(), err.getvalue()


def do_job(start: Any, job: Job, directory: Path, refusals: list[str]) -> Items:
    """All hashes of a job, whose commands run in a directory of its own."""
    found: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    directory.mkdir()
    with chdir(directory):
        for index, words in enumerate(job.commands):
            code, out, err = call(start, words)
            where = f"command {index + 1} ({words[0]})"
            found[where]["exit code"].append(str(code))
            if code:  # the words of a refusal may change; that it is refused may not
                refusals.append(f"{job.name}, {where}: {code}: {(err or out).strip()[-300:]}")
            elif "--json" in words:
                for what, value in output_hashes(json.loads(out)):
                    found[where][what].append(value)
        for where, what, value in directory_hashes(Path()):
            found[where][what].append(value)
    # Several results of one name, as of a search, are compared as a set: their order is by key.
    return {where: {w: sorted(v) for w, v in items.items()} for where, items in found.items()}


def do_batch(tree: Path, names: Sequence[str], file: Path) -> None:
    """Do jobs in this process, one after another, and write their hashes."""
    sys.modules["matplotlib"] = None  # type: ignore[assignment]  # figures take longer than learning
    work = file.with_suffix("")
    work.mkdir()
    write_inputs(work)
    start = command_of(tree)
    jobs = {job.name: job for job in all_jobs()}
    done: dict[str, Any] = {}
    for number, name in enumerate(names):
        began = time.process_time()
        refusals: list[str] = []
        items = do_job(start, jobs[name], work / f"{number}", refusals)
        seconds = round(time.process_time() - began, 3)
        done[name] = {"items": items, "refusals": refusals, "cpu_seconds": seconds}
    file.write_text(json.dumps(done))


# -- a record: the hashes of one tree --------------------------------------------------------


def machine() -> dict[str, str]:
    """What bits depend on besides the code."""
    packages = {name: version(name) for name in ("torch", "numpy", "pillow")}
    return {"python": platform.python_version(), "machine": _processor(), **packages}


def _processor() -> str:
    import torch

    return f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"


def tree_of(commit: str, below: Path) -> Path:
    """The files of a commit."""
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", commit, "src", "pyproject.toml"],
        check=True,
        capture_output=True,
    ).stdout
    tree = below / "tree"
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(tree, filter="data")
    return tree.resolve()


def named(commit: str | None) -> str:
    """A commit by its hash; the working tree by name."""
    if commit is None:
        return WORKING_TREE
    words = ["git", "-C", str(ROOT), "rev-parse", "--verify", "--short", f"{commit}^{{commit}}"]
    found = subprocess.run(words, capture_output=True, text=True)
    if found.returncode:
        raise SystemExit(f"There is no commit {commit}. Give a hash, a branch or a tag.")
    return found.stdout.strip()


def record(commit: str | None, jobs: Sequence[Job], processes: int) -> dict[str, Any]:
    """Do the jobs with the code of a commit, or of the working tree."""
    with tempfile.TemporaryDirectory(prefix="same-numbers-") as temporary:
        below = Path(temporary).resolve()
        tree = ROOT if commit is None else tree_of(commit, below)
        environment = {
            **{name: v for name, v in os.environ.items() if not name.startswith("ANCL_")},
            "PYTHONPATH": os.pathsep.join([str(tree / "src"), str(Path(__file__).parent)]),
            "PYTHONHASHSEED": "0",
            "OMP_NUM_THREADS": "1",
            "MKL_NUM_THREADS": "1",
        }

        def batch(number: int) -> dict[str, Any]:
            file = below / f"batch{number}.json"
            names = [job.name for job in jobs[number::BATCHES]]
            words = [sys.executable, __file__, "--batch", str(tree), str(file)]
            subprocess.run([*words, *names], env=environment, check=True, cwd=below)
            done: dict[str, Any] = json.loads(file.read_text())
            return done

        with ThreadPoolExecutor(processes) as pool:
            done = {
                n: each for batch in pool.map(batch, range(BATCHES)) for n, each in batch.items()
            }
    for job in jobs:
        done[job.name]["commands"] = json_hash(job.commands)
    return {"commit": named(commit), "machine": machine(), "jobs": done}


# -- the comparison --------------------------------------------------------------------------


def job_differences(name: str, one: Items, other: Items) -> Iterator[str]:
    """A line for every stage or output in which two jobs differ."""
    for where in dict.fromkeys([*one, *other]):
        before, after = one.get(where, {}), other.get(where, {})
        if not before or not after:
            yield f"{name} | {where} | only in the {'second' if after else 'first'}"
            continue
        changed = [w for w in dict.fromkeys([*before, *after]) if before.get(w) != after.get(w)]
        if changed:
            rest = f" and {len(changed) - 6} more" if len(changed) > 6 else ""
            yield f"{name} | {where} | {', '.join(changed[:6])}{rest}"


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    """A line for every difference of two records."""
    for what in dict.fromkeys([*one["machine"], *other["machine"]]):
        before, after = one["machine"].get(what), other["machine"].get(what)
        if before != after:
            yield f"machine | {what} | {before} and {after}: bits may differ for this alone"
    for name in dict.fromkeys([*one["jobs"], *other["jobs"]]):
        if name not in one["jobs"] or name not in other["jobs"]:
            where = "second" if name in other["jobs"] else "first"
            yield f"{name} | the whole job | only in the {where}: record it again"
        elif one["jobs"][name]["commands"] != other["jobs"][name]["commands"]:
            yield f"{name} | the whole job | its commands have changed: record it again"
        else:
            yield from job_differences(
                name, one["jobs"][name]["items"], other["jobs"][name]["items"]
            )


def differences_within(found: Mapping[str, Any], jobs: Iterable[Job]) -> Iterator[str]:
    """A line for every difference of two jobs that must be equal, as in a pool and alone."""
    for job in jobs:
        if job.same_as and {job.name, job.same_as} <= found["jobs"].keys():
            both = [found["jobs"][name]["items"] for name in (job.same_as, job.name)]
            title = f"{found['commit']}: {job.same_as} = {job.name}"
            yield from job_differences(title, *both)


def summary(found: Mapping[str, Any]) -> str:
    """How much was computed, and for how long."""
    jobs = found["jobs"].values()
    refused = sum(bool(job["refusals"]) for job in jobs)
    items = [(where, of) for job in jobs for where, of in job["items"].items()]
    stages = sum(len(of["key"]) for where, of in items if re.match(r"task \d", where))
    hashes = sum(len(values) for _, of in items for values in of.values())
    seconds = sum(j["cpu_seconds"] for j in jobs)
    return (
        f"{found['commit']}: {len(jobs)} jobs ({refused} refused, which is "
        f"compared too), {stages} stored stages, {hashes} hashes, {seconds:.0f} CPU s"
    )


# -- the command -----------------------------------------------------------------------------


def arguments() -> argparse.Namespace:
    """What the command was given."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("commits", nargs="*", metavar="COMMIT", help="one or two; see above")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the hashes of a tree")
    parser.add_argument("--against", type=Path, metavar="FILE", help="compare with such a file")
    parser.add_argument("--quick", action="store_true", help="the most telling jobs alone")
    parser.add_argument("--only", metavar="TEXT", help="jobs with this text in their name")
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="[1]")
    parser.add_argument("--refusals", action="store_true", help="print the refusals' messages too")
    parser.add_argument("--list", action="store_true", help="print the jobs, and stop")
    given = parser.parse_args()
    if given.record and given.record.resolve().is_relative_to(ROOT):
        parser.error("--record: the hashes are this machine's, so give a file outside the project")
    most = 1 if given.record or given.against else 2
    if len(given.commits) > most or (most == 2 and not given.commits and not given.list):
        parser.error("give one or two commits, or --record or --against with one at most")
    return given


def main() -> int:
    """Compare, or record."""
    given = arguments()
    jobs = [j for j in all_jobs() if j.quick or not given.quick]
    jobs = [j for j in jobs if (given.only or "") in j.name]
    if given.list:
        print(*(job.name for job in jobs), sep="\n")
        return 0
    commits: list[str | None] = [*given.commits]
    if given.record:
        found = record(next(iter(commits), None), jobs, given.processes)
        given.record.write_text(json.dumps(found))
        if given.refusals:
            print(*(text for job in found["jobs"].values() for text in job["refusals"]), sep="\n")
        lines = list(differences_within(found, jobs))
        print(*lines, summary(found), sep="\n")
        return bool(lines)
    if given.against:
        before = json.loads(given.against.read_text())
        names = {job.name for job in jobs}
        before["jobs"] = {n: j for n, j in before["jobs"].items() if n in names or not given.quick}
    else:
        before = record(commits.pop(0), jobs, given.processes)
    after = record(next(iter(commits), None), jobs, given.processes)
    if given.refusals:
        print(*(text for job in after["jobs"].values() for text in job["refusals"]), sep="\n")
    lines = [*differences(before, after)]
    lines += [line for each in (before, after) for line in differences_within(each, jobs)]
    print(*lines, summary(before), summary(after), sep="\n")
    print(f"{len(lines)} differences" if lines else "The same to the bit.")
    return bool(lines)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--batch"]:
        do_batch(Path(sys.argv[2]), sys.argv[4:], Path(sys.argv[3]))
    else:
        sys.exit(main())
