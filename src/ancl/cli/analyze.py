"""``ancl analyze``: where ANCL's network lies between the old and the auxiliary one."""

import json
from dataclasses import dataclass
from typing import Annotated

from typer import Argument, Option

from ancl.cli import flags
from ancl.cli.flags import Machine, Results, Seeding, Settings, Weights, grouped

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


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What is measured, where and how."""

    task: Task = 1
    grid: Grid = 7
    split: OnSplit = None
    images: Images = 1000
    estimator: Cka = "biased"
    double: Double = False


@grouped
def analyze(
    method: Analyzed,
    benchmark: On,
    *,
    lamb_a: Lambs,
    lamb: flags.Lamb = None,
    search_lamb: SearchLamb = None,
    measured: Measured,
    seeding: Seeding,
    settings: Settings,
    machine: Machine,
    results: Results,
) -> None:
    """Weight distance, CKA and accuracy landscape of one task over a set of λ_a."""
    from ancl.cli.analyzed import analyzed, analyzed_text, asked, planned, planned_text

    weights = Weights(lamb=lamb)
    request = flags.make_request(method, benchmark, weights, seeding, settings, machine)
    wishes = {**vars(measured), "images": measured.images or None}
    question = asked(request, lamb_a, search_lamb, wishes)
    places = results.places(settings.data_root)
    if results.dry_run:
        plan = planned(question, places)
        print(json.dumps(plan) if results.as_json else planned_text(plan))
        return
    answer = analyzed(question, places, results.quiet)
    print(json.dumps(answer.json()) if results.as_json else analyzed_text(answer))
