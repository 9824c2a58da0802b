"""Names and order of methods and streams, as the paper's tables have them."""

import re

from ancl.experiments.pairing import VARIANTS, split_method
from ancl.experiments.spec import RunSpec

METHODS = {
    "finetune": "Fine-tuning",
    "joint": "Joint",
    "freeze": "Freezing",
    "lwm": "LwM",
    "dmc": "DMC",
    "eeil": "EEIL",
    "ewc": "EWC",
    "mas": "MAS",
    "si": "SI",
    "rwalk": "R-Walk",
    "lwf": "LwF",
    "lfl": "LFL",
    "icarl": "iCaRL",
    "bic": "BiC",
    "wa": "WA",
    "lucir": "LUCIR",
    "podnet": "PODNet",
    "connector": "Connector",
    "der": "DER",
    "aanets": "AANets",
    "ccgn": "CCGN",
}
_TITLES = {"CL": "", "AFEC": "AFEC-", "ANCL": "A-"}
_BENCHMARKS = (
    "cifar100/10",
    "cifar100/20",
    "tinyimagenet/10",
    "tinyimagenet/20",
    "cifar100/6",
    "cifar100/11",
    "tinyimagenet/11",
    "tinyimagenet/21",
)
_SCENARIOS = ("til", "cil", "dil", "cir")


def base_title(base: str) -> str:
    """A base method as papers write it; a user's method by its name in its file.

    >>> base_title("lwf"), base_title("my/own.py:mine")
    ('LwF', 'mine')
    """
    return METHODS.get(base, base.rpartition(":")[2])


def method_title(method: str) -> str:
    """A method as papers write it.

    >>> method_title("a-lwf"), method_title("afec-ewc")
    ('A-LwF', 'AFEC-EWC')
    """
    base, variant = split_method(method)
    return _TITLES[variant] + base_title(base)


def method_rank(method: str) -> tuple[int, str, int]:
    """The rank of a method: as in the paper's tables, then the others by name."""
    base, variant = split_method(method)
    known = list(METHODS)
    place = known.index(base) if base in METHODS else len(known)
    return place, base, list(VARIANTS).index(variant)


def stream_rank(spec: RunSpec) -> tuple[int, int, str]:
    """The rank of a stream: by scenario, then as in the paper, then by name."""
    name = spec.stream
    place = _BENCHMARKS.index(name) if name in _BENCHMARKS else len(_BENCHMARKS)
    return _SCENARIOS.index(spec.data.scenario), place, name


def natural(text: str) -> tuple[tuple[float, str], ...]:
    """A key that sorts names by the numbers in them.

    >>> sorted(["EWC (lamb=10100)", "EWC (lamb=4000)", "A"], key=natural)
    ['A', 'EWC (lamb=4000)', 'EWC (lamb=10100)']
    """
    parts = re.split(r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)", text)
    return tuple((float(p), "") if i % 2 else (-1.0, p) for i, p in enumerate(parts))
