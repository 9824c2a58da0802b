"""Methods as papers write them, and the order tables put them in."""

from ancl.spec import RunSpec

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
}
VARIANTS = ("CL", "AFEC", "ANCL")
_PREFIXES = {"CL": "", "AFEC": "afec-", "ANCL": "a-"}
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
_SCENARIOS = ("til", "cil", "dil")


def taken_apart(method: str) -> tuple[str, str]:
    """(base, variant) of a method's name, without loading code a name may point to.

    >>> taken_apart("afec-lwf"), taken_apart("ewc")
    (('lwf', 'AFEC'), ('ewc', 'CL'))
    """
    for variant, prefix in _PREFIXES.items():
        if prefix and method.startswith(prefix):
            return method.removeprefix(prefix), variant
    return method, "CL"


def base_title(base: str) -> str:
    """A base method as papers write it; one from outside by the name it has in its file.

    >>> base_title("lwf"), base_title("my/own.py:mine")
    ('LwF', 'mine')
    """
    return METHODS.get(base, base.rpartition(":")[2])


def method_title(method: str) -> str:
    """A method as papers write it.

    >>> method_title("a-lwf"), method_title("afec-ewc")
    ('A-LwF', 'AFEC-EWC')
    """
    base, variant = taken_apart(method)
    return _TITLES[variant] + base_title(base)


def method_rank(method: str) -> tuple[int, str, int]:
    """Where a method stands: as in the paper's tables, then the others by name."""
    base, variant = taken_apart(method)
    known = list(METHODS)
    place = known.index(base) if base in METHODS else len(known)
    return place, base, VARIANTS.index(variant)


def stream_rank(spec: RunSpec) -> tuple[int, int, str]:
    """Where a stream stands: by scenario, then as the paper numbers them, then by name."""
    name = spec.benchmark
    place = _BENCHMARKS.index(name) if name in _BENCHMARKS else len(_BENCHMARKS)
    return _SCENARIOS.index(spec.data.scenario), place, name
