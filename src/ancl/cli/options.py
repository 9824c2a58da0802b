"""The arguments and flags that commands share, as types."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

Method = Annotated[
    str | None,
    Argument(metavar="METHOD", show_default=False, help="Such as lwf or a-lwf: ancl list methods"),
]
Benchmark = Annotated[
    str | None,
    Argument(metavar="BENCHMARK", show_default=False, help="Such as digits/5: list benchmarks"),
]
Lamb = Annotated[str | None, Option("--lamb", metavar="X", help="λ, the pull to the old network.")]
AuxiliaryLamb = Annotated[
    str | None, Option("--lamb-a", metavar="X", help="λ_a, the pull to the auxiliary network.")
]
Seed = Annotated[str | None, Option("--seed", metavar="N", help="Where randomness comes from. [0]")]
Seeds = Annotated[
    str | None, Option("--seeds", metavar="0-2,7", help="Several runs, one a seed, and their mean.")
]
Scenario = Annotated[
    str | None,
    Option(
        "--scenario", metavar="til|cil|dil", help="Whether the task is told at test time (til)."
    ),
]
Tasks = Annotated[str | None, Option("--tasks", metavar="N", help="So many equal tasks.")]
Classes = Annotated[
    str | None, Option("--classes", metavar="50,10x5", help="Or the classes of each task.")
]
First = Annotated[str | None, Option("--first", metavar="N", help="Classes of the first task.")]
Order = Annotated[
    str | None,
    Option("--order", metavar="ORDER", help="Of classes: natural, icarl, seed:N, or 3,1,0,2."),
]
Data = Annotated[str | None, Option("--data", metavar="SOURCE", help="Images: ancl list data")]
MemoryPerClass = Annotated[
    str | None,
    Option("--memory-per-class", metavar="N", help="Keep so many images of each class."),
]
Memory = Annotated[
    str | None, Option("--memory", metavar="N", help="Or so many in all, shared by the classes.")
]
MemorySelection = Annotated[
    str | None,
    Option("--memory-selection", metavar="RULE", help="herding, random, entropy or distance"),
]
Epochs = Annotated[str | None, Option("--epochs", metavar="N", help="At most so many a task.")]
Set = Annotated[
    list[str] | None,
    Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any setting; ancl list methods --options METHOD shows all. May be repeated.",
    ),
]
Config = Annotated[
    Path | None,
    Option("--config", metavar="FILE.yaml", help="Settings from a file, such as a run's spec.yaml"),
]
Device = Annotated[str | None, Option("--device", metavar="D", help="auto, cpu, cuda, cuda:N, mps")]
Threads = Annotated[
    str | None, Option("--threads", metavar="N", help="CPU threads; bits depend on them.")
]
Runs = Annotated[Path, Option("--runs", metavar="DIR", help="Where results go.")]
Store = Annotated[
    Path | None, Option("--store", metavar="DIR", help="Where stages are kept. [RUNS/.store]")
]
Executor = Annotated[
    str | None,
    Option("--executor", metavar="serial|pool|ray", help="Where stages are computed. [serial]"),
]
Workers = Annotated[
    str | None, Option("--workers", metavar="N", help="So many stages at once: a pool of processes")
]
Address = Annotated[
    str | None, Option("--address", metavar="A", help="Of a Ray cluster that runs; else one starts")
]
Preset = Annotated[
    str,
    Option(
        "--preset",
        metavar="paper|official",
        help="Training as the paper says, or as its code does.",
    ),
]
Quick = Annotated[
    bool, Option("--quick", help="One epoch on 20 images a class: does it run? Not a result.")
]
Log = Annotated[
    str | None, Option("--log", metavar="tensorboard,wandb", help="Write curves there too.")
]
DryRun = Annotated[bool, Option("--dry-run", help="Show what would be done, and do nothing.")]
Json = Annotated[bool, Option("--json", help="One JSON object on standard output.")]
Quiet = Annotated[bool, Option("--quiet", help="No progress.")]

DataRoot = Annotated[
    Path | None,
    Option("--data-root", metavar="DIR", help="Where data lies. [$ANCL_DATA, $DATA_DIR or data]"),
]

RUNS = Path("runs")
