"""``ancl analyze``: where ANCL's network lies between the old and the auxiliary one."""

import json
from typing import Annotated

from typer import Argument, Option

from ancl.cli import options
from ancl.cli.guard import guarded

Analyzed = Annotated[
    str,
    Argument(
        metavar="METHOD", show_default=False, help="One with an ANCL variant: ewc or a-ewc, …"
    ),
]
On = Annotated[
    str,
    Argument(metavar="BENCHMARK", show_default=False, help="Such as digits/5: list benchmarks"),
]
Lambs = Annotated[
    str, Option("--lamb-a", metavar="10,100,…", show_default=False, help="Every λ_a to compare.")
]
SearchLamb = Annotated[
    str | None,
    Option("--search-lamb", metavar="1,10,…", help="Choose λ of these with CL, by validation."),
]
Task = Annotated[int, Option("--task", metavar="T", help="The task, counted from 0.", min=1)]
Grid = Annotated[
    int, Option("--grid", metavar="N", help="N × N points of landscape; 0 for none.", min=0)
]
OnSplit = Annotated[
    str | None,
    Option(
        "--split",
        metavar="test|val|train|old",
        help="Images for CKA and landscape. [old for CKA, test for the landscape]",
    ),
]
Images = Annotated[
    int, Option("--images", metavar="N", help="At most so many a measurement; 0 for all.", min=0)
]
Cka = Annotated[
    str, Option("--cka", metavar="biased|unbiased|minibatch", help="The estimator of CKA.")
]
Double = Annotated[bool, Option("--double", help="The Hessian in double precision.")]


@guarded
def analyze(
    method: Analyzed,
    benchmark: On,
    *,
    lamb_a: Lambs,
    lamb: options.Lamb = None,
    search_lamb: SearchLamb = None,
    task: Task = 1,
    grid: Grid = 7,
    split: OnSplit = None,
    images: Images = 1000,
    cka: Cka = "biased",
    double: Double = False,
    seed: options.Seed = None,
    seeds: options.Seeds = None,
    scenario: options.Scenario = None,
    tasks: options.Tasks = None,
    classes: options.Classes = None,
    first: options.First = None,
    order: options.Order = None,
    data: options.Data = None,
    data_root: options.DataRoot = None,
    epochs: options.Epochs = None,
    setting: options.Set = None,
    config: options.Config = None,
    device: options.Device = None,
    threads: options.Threads = None,
    runs: options.Runs = options.RUNS,
    store: options.Store = None,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Weight distance, CKA and accuracy landscape of one task over a set of λ_a."""
    from ancl.cli.analyzed import analyzed, analyzed_text, asked, planned, planned_text
    from ancl.cli.request import Request

    flags = {
        "--lamb": lamb,
        "--scenario": scenario,
        "--tasks": tasks,
        "--classes": classes,
        "--first": first,
        "--order": order,
        "--data": data,
        "--epochs": epochs,
        "--device": device,
        "--threads": threads,
    }
    given = {flag: value for flag, value in flags.items() if value is not None}
    request = Request(method, benchmark, given, setting or [], config, seed, seeds)
    question = asked(
        request,
        lamb_a,
        search_lamb,
        {"task": task, "grid": grid, "split": split, "images": images or None, "double": double},
        cka,
    )
    places = options.Places.of(runs, store, data_root)
    if dry_run:
        plan = planned(question, places)
        print(json.dumps(plan) if as_json else planned_text(plan))
        return
    answer = analyzed(question, places, quiet)
    print(json.dumps(answer.json()) if as_json else analyzed_text(answer))
