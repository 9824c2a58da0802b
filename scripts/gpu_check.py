"""What a GPU gives here: same bits twice, the CPU's numbers, speed, waits and memory.

    python scripts/gpu_check.py                  # cuda where there is one; ends with 1 if bad
    python scripts/gpu_check.py --device cpu     # as far as a CPU can

It prints a table in Markdown, to be pasted into a report. The library was written and tested
without a GPU: every operation was shown to keep to one device, and no step to wait for it, by
tensors that only claim to be elsewhere (tests/test_devices.py). What real hardware does is what
this measures.

Bounds: in fp32 the weights after one epoch of each of two tasks are within 1 % of the way that
they have gone on the CPU, in bf16 and fp16 within 30 %. An epoch reads the device once.
"""

import argparse
import copy
import platform
import resource
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from functools import cache, partial
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor

import ancl
from ancl.data import Batches, Normalization, Samples
from ancl.losses import CrossEntropy, View
from ancl.networks import architecture
from ancl.regularizers import Ewc, Lwf, Regularizer
from ancl.training.config import Training
from ancl.training.loop import Fit
from ancl.training.objective import Objective, PenaltyTerm, anchor_for

PRECISIONS = ("fp32", "bf16", "fp16")
BOUNDS = {"fp32": 0.01, "bf16": 0.3, "fp16": 0.3}
"""The largest distance to the CPU's fp32 weights, over the way that these have gone."""
METHODS = ("finetune", "a-lwf", "a-ewc", "icarl")
TASKS = (slice(0, 50), slice(50, 100))
OMEGAS: dict[str, Regularizer] = {"a-lwf": Lwf(), "a-ewc": Ewc()}
READS = 1
"""How often the steps of an epoch and its end wait for the device: once, for its losses."""


class Row(NamedTuple):
    """A line of the table; ``good`` is None where nothing is asked."""

    what: str
    result: str
    good: bool | None = None


# -- whole runs ------------------------------------------------------------------------------


@cache
def weights_of(method: str, device: str, precision: str, network: str) -> list[dict[str, Tensor]]:
    """The main network's weights after each of two tasks, from a fresh store."""
    with tempfile.TemporaryDirectory() as folder:
        result = ancl.run(
            method,
            "digits/5",
            runs=folder,
            device=device,
            data={"scenario": "cil", "tasks": 2, "per_class": 60},
            network=network,
            memory=5,
            training={"epochs": 1, "schedule": "constant", "precision": precision},
        )
        assert isinstance(result, ancl.RunResult)
        networks = [result.network(task, "main") for task in range(2)]
    return [{n: t.cpu() for n, t in network.state_dict().items()} for network in networks]


def check_same_bits(method: str, device: str, network: str) -> Row:
    """The same run twice."""
    one = weights_of(method, device, "fp32", network)
    other = weights_of.__wrapped__(method, device, "fp32", network)
    same = all(torch.equal(a[n], b[n]) for a, b in zip(one, other, strict=True) for n in a)
    return Row(f"{method}: the same bits twice", "yes" if same else "no", same)


def check_near_cpu(method: str, device: str, precision: str, network: str) -> Row:
    """How far a run is from that on the CPU in fp32, over the way from its first task's end."""
    start, wanted = weights_of(method, "cpu", "fp32", network)
    _, there = weights_of(method, device, precision, network)
    names = [n for n, tensor in start.items() if tensor.is_floating_point() and n in there]
    names = [n for n in names if start[n].shape == wanted[n].shape]
    way = _length([wanted[n] - start[n] for n in names])
    gap = _length([there[n] - wanted[n] for n in names]) / max(way, 1e-12)
    bound = BOUNDS[precision]
    what = f"{method}, {precision}: distance to the CPU"
    return Row(what, f"{gap:.2g} (≤ {bound:g})", gap <= bound)


def _length(tensors: Sequence[Tensor]) -> float:
    return float(torch.cat([tensor.double().flatten() for tensor in tensors]).norm())


# -- one training ----------------------------------------------------------------------------


class Load(NamedTuple):
    """What is trained: a network on so many batches of so many images."""

    network: str
    size: int
    steps: int


def make_fit(method: str, device: torch.device, precision: Any, load: Load) -> Fit:
    """A training on images of 32x32 pixels that are noise, a second task's."""
    torch.manual_seed(0)
    size, steps = load.size, load.steps
    start = architecture(load.network, (3, 32, 32)).build([50, 50]).to(device)
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (size * steps, 32, 32, 3), dtype=torch.uint8, generator=draw)
    y = torch.randint(50, 100, (len(x),), generator=draw)
    terms = []
    if method in OMEGAS:
        omega = OMEGAS[method]
        importance = {n: torch.ones_like(w) for n, w in start.weights().items()}
        for name, classes in zip(("old", "auxiliary"), TASKS, strict=True):
            anchor = anchor_for(omega, copy.deepcopy(start), classes, {"gradients": importance})
            terms.append(PenaltyTerm(name, 1e-3, omega, anchor))
    batches = Batches(Samples(x, y), size, Normalization((0.5,) * 3, (0.25,) * 3), "crop", device)
    training = Training(epochs=10**6, lr=1e-3, schedule="constant", precision=precision)
    view = View(TASKS, task_aware=True)
    objective = Objective(CrossEntropy(), tuple(terms))
    return Fit(start, objective, batches, None, view, training, (0, 1, "main"))


def measure_speed(method: str, device: torch.device, precision: str, load: Load) -> Row:
    """Images per second: the best of three epochs after one that does not count."""
    fit = make_fit(method, device, precision, load)
    next(fit)
    seconds = []
    for _ in range(3):
        began = perf_counter()
        next(fit)
        _wait(device)
        seconds.append(perf_counter() - began)
    speed, what = load.size * load.steps / min(seconds), f"{load.network}, batch {load.size}"
    return Row(f"{method}, {precision}: images per second ({what})", f"{speed:,.0f}")


def check_waits(method: str, device: torch.device, load: Load) -> Row:
    """How often an epoch waits for the device."""
    what = f"{method}: waits in an epoch of {load.steps} steps"
    if device.type != "cuda":
        return Row(what, "only on a GPU")
    fit = make_fit(method, device, "fp32", load)
    next(fit)
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always")
            next(fit)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    waits = sum("synchroniz" in str(warning.message) for warning in noted)
    return Row(what, f"{waits} (≤ {READS})", waits <= READS)


def measure_memory(method: str, device: torch.device, precision: str, load: Load) -> Row:
    """The most that a training takes: of a GPU, or of the process."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    next(make_fit(method, device, precision, load))
    if device.type == "cuda":
        return _memory_row(method, precision, torch.cuda.max_memory_allocated(device))
    return _memory_row(method, precision, 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def _memory_row(method: str, precision: str, used: int) -> Row:
    return Row(f"{method}, {precision}: largest memory", f"{used / 1e6:,.0f} MB")


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


# -- the table -------------------------------------------------------------------------------


def machine(device: torch.device) -> list[Row]:
    """What it was measured on."""
    name = platform.processor() or platform.machine()
    if device.type == "cuda":
        memory = torch.cuda.get_device_properties(device).total_memory
        name = f"{torch.cuda.get_device_name(device)}, {memory / 1e9:.0f} GB"
    versions = (ancl.__version__, torch.__version__, platform.python_version())
    return [Row("device", f"{device} ({name})"), Row("ancl, torch, Python", ", ".join(versions))]


def rows(device: torch.device, *, quick: bool) -> list[Callable[[], Row]]:
    """All measurements, to be made one after the other."""
    methods, network = (METHODS[:2], "mlp") if quick else (METHODS, "resnet8")
    load = Load("resnet8", 8, 2) if quick else Load("resnet32", 256, 40)
    precisions = PRECISIONS[:2] if device.type == "cpu" else PRECISIONS
    trained = methods if quick else ("finetune", "a-lwf", "a-ewc")
    name = str(device)
    return [
        *(partial(check_same_bits, m, name, network) for m in methods),
        *(partial(check_near_cpu, m, name, p, network) for m in methods for p in precisions),
        *(partial(check_waits, m, device, load) for m in trained),
        *(partial(measure_speed, m, device, p, load) for m in trained for p in precisions),
        *(partial(measure_memory, "a-lwf", device, p, load) for p in precisions),
    ]


def table(done: Sequence[Row]) -> str:
    """The rows in Markdown."""
    marks = {True: "good", False: "**BAD**", None: ""}
    lines = [f"| {row.what} | {row.result} | {marks[row.good]} |" for row in done]
    return "\n".join(["| what | result | |", "|---|---|---|", *lines])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table, and say whether all is good."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--quick", action="store_true", help="the smallest of everything")
    chosen = parser.parse_args(arguments)
    try:
        device = torch.device(ancl.spec("finetune", "digits/5", device=chosen.device).device)
    except ancl.AnclError as error:
        print(error, file=sys.stderr)
        return 2
    done = machine(device)
    for measure in rows(device, quick=chosen.quick):
        done.append(measure())
        print(f"{done[-1].what}: {done[-1].result}", file=sys.stderr)
    print(table(done))
    return int(any(row.good is False for row in done))


if __name__ == "__main__":
    sys.exit(main())
