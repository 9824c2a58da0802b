"""What a search was asked for, its protocols by name, and what it leaves behind."""

import csv
import io
import json
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ancl.cli.request import Request, parse_seeds
from ancl.errors import SpecError, StoreError, unknown
from ancl.executors import ExecutorChoice
from ancl.experiments.prune import STAGES
from ancl.experiments.results import Places
from ancl.experiments.spec import RunSpec
from ancl.hashing import digest

PROTOCOLS = ("two-stage", "per-task")
_REPORTED = 3


class Asked(NamedTuple):
    """A search as the command line asks for it."""

    request: Request
    grids: Mapping[str, str | None]
    report_seeds: str | None
    places: Places
    choice: ExecutorChoice


class Found(NamedTuple):
    """What to print, and whether something failed."""

    text: str
    json: dict[str, Any]
    failed: bool = False


def search_by(protocol: str, asked: Asked, dry_run: bool, quiet: bool) -> Found:
    """Search by a protocol.

    Raises:
        SpecError: There is none of that name, or it does not fit what was asked.
    """
    if protocol not in PROTOCOLS:
        raise SpecError("--protocol: " + unknown("protocol", protocol, PROTOCOLS))
    if protocol == "two-stage":
        from ancl.cli.twostage import search_two_stages

        return search_two_stages(asked, dry_run, quiet)
    from ancl.cli.stepwise import search_task_by_task

    return search_task_by_task(asked, dry_run, quiet)


def seeds_to_report(asked: Asked, searched: Sequence[int]) -> tuple[str, list[str]]:
    """The seeds of the command that follows, apart from those that decided; and what to say."""
    if asked.report_seeds is None:
        first = max(searched) + 1
        return f"{first}-{first + _REPORTED - 1}", []
    both = sorted(set(parse_seeds(asked.report_seeds)) & set(searched))
    if not both:
        return asked.report_seeds, []
    seeds = ", ".join(map(str, both))
    return asked.report_seeds, [
        f"Seeds that decided are reported too ({seeds}), which flatters the result. Keep --seeds "
        f"and --search-seeds apart."
    ]


def run_command(asked: Asked, spec: RunSpec, chosen: Mapping[str, float], seeds: str) -> str:
    """The command that runs what was found, with everything else as it was given."""
    request = asked.request
    flags = {**request.flags, **{f"--{k.replace('_', '-')}": f"{v:g}" for k, v in chosen.items()}}
    words = ["ancl", "run", spec.method, spec.benchmark]
    for flag, value in flags.items():
        words += [flag, value]
    for text in request.settings:
        words += ["--set", text]
    if request.config:
        words += ["--config", str(request.config)]
    if request.preset != "paper":
        words += ["--preset", request.preset]
    if request.quick:
        words.append("--quick")
    if asked.places.data:
        words += ["--data-root", str(asked.places.data)]
    return shlex.join([*words, "--seeds", seeds])


def search_directory(runs: Path, protocol: str, spec: RunSpec, decisive: Any) -> Path:
    """Where a search's files go: the same search always to the same place."""
    method = spec.method if ":" not in spec.method else Path(spec.method.rpartition(":")[0]).stem
    mark = digest([protocol, json.loads(spec.model_dump_json()), decisive])[:8]
    return runs / "searches" / f"{spec.benchmark.replace('/', '-')}_{method}_{protocol}_{mark}"


class Kept:
    """The stages of a search, on disk before they are computed: ``ancl store prune`` keeps them.

    Args:
        directory: The search's own.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.keys: dict[str, None] = {}
        self._before: list[str] = []
        with suppress(OSError, ValueError):  # a search that is done again, or goes on
            self._before = json.loads((directory / STAGES).read_text(encoding="utf-8"))

    def add(self, keys: Iterable[str]) -> None:
        """Keep these too."""
        self.keys |= dict.fromkeys(keys)
        _write(
            self.directory, {STAGES: json.dumps(list(dict.fromkeys([*self._before, *self.keys])))}
        )


def write_search(kept: Kept, trials: Sequence[Mapping[str, Any]], files: Mapping[str, Any]) -> None:
    """Write every trial as JSON and CSV, then the other files by name; the decision comes last."""
    table = io.StringIO()
    columns = list(dict.fromkeys(key for trial in trials for key in trial))
    writer = csv.DictWriter(table, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {k: json.dumps(v) if isinstance(v, dict) else v for k, v in trial.items()}
        for trial in trials
    )
    contents = {"trials.json": list(trials), STAGES: list(kept.keys), **files}
    texts = {name: json.dumps(content, indent=1) for name, content in contents.items()}
    _write(kept.directory, {"trials.csv": table.getvalue(), **texts})


def _write(directory: Path, texts: Mapping[str, str]) -> None:
    """Files by name, each whole or as it was.

    Raises:
        StoreError: The directory cannot be written.
    """
    temporary = directory / f".{os.getpid()}.tmp"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(directory / name)
    except OSError as error:
        raise StoreError(
            f"The search cannot be written to {directory} ({error.strerror}). Make room or give "
            f"another --runs DIR; the same command finds everything trained."
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
