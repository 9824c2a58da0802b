"""What the file of a study may hold: seeds, benchmarks, methods with their grids, rows, and rules.

docs/studies.md describes the form for users.
"""

from typing import Annotated, Any, Literal, Self

from annotated_types import Ge, Gt, MinLen
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Tag,
    model_validator,
)

from ancl.experiments.grid import EXTENDED_FROM


def _ascending(values: tuple[float, ...]) -> tuple[float, ...]:
    if list(values) != sorted(set(values)):
        raise ValueError("must ascend")
    if values and not 1e-30 <= values[0] <= values[-1] <= 1e30:
        raise ValueError("must be between 1e-30 and 1e30")  # what lies beyond an edge is finite
    return values


def _distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(set(values)) < len(values):
        raise ValueError("has a value twice")
    return values


Values = Annotated[tuple[Annotated[float, Gt(0)], ...], AfterValidator(_ascending)]
Seeds = Annotated[tuple[Annotated[int, Ge(0)], ...], MinLen(1)]
Setting = float | int | bool | str


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class GridValue(_Section):
    """A setting of a row that is chosen on the search seeds, by mean validation accuracy."""

    grid: Annotated[tuple[Setting, ...], MinLen(2), AfterValidator(_distinct)]


class RowValue(_Section):
    """A setting of a row that is the one of another row above it."""

    row: str


def _form(value: object) -> str:
    """How a row gives a setting: chosen by a grid, taken from another row, or written out."""
    keys = value if isinstance(value, dict) else ()
    return next((form for form in ("grid", "row") if form in keys), "fixed")


RowSetting = Annotated[
    Annotated[GridValue, Tag("grid")]
    | Annotated[RowValue, Tag("row")]
    | Annotated[Any, Tag("fixed")],
    Discriminator(_form),
]


class MethodPlan(_Section):
    """Grids of λ, of λ_a, of AFEC's λ_a (no AFEC without), and settings by dotted key."""

    lamb: Annotated[Values, MinLen(EXTENDED_FROM)]
    lamb_a: Annotated[Values, MinLen(EXTENDED_FROM)]
    afec: Values = ()
    settings: dict[str, Any] = {}


class BenchmarkPlan(_Section):
    """Methods to study on a benchmark, and reference rows with their own settings.

    A row is named by its method, or has any name and the setting ``method``. ``baseline`` names
    the row that the others are compared with, seed by seed.
    """

    methods: dict[str, MethodPlan] = {}
    references: dict[str, dict[str, RowSetting]] = {}
    settings: dict[str, Any] = {}
    baseline: str = ""


Rules = Annotated[tuple[str, ...], MinLen(1)]


class RulesPlan(_Section):
    """Rules that compete in place of grids, and the methods that decide which is taken for all.

    Rules for λ are those of an Ω on answers, and those of an Ω on weights.
    """

    deciding: Annotated[tuple[str, ...], MinLen(1)]
    lamb_a: Rules
    lamb: dict[Literal["answers", "weights"], Rules]

    @property
    def kinds(self) -> tuple[str, ...]:
        """What there are rules for: ``lamb_a``, and λ by what its Ω is on."""
        return ("lamb_a", *self.lamb)

    def of(self, kind: str) -> tuple[str, ...]:
        """Rules that compete: for ``lamb_a``, or for λ of Ω on ``answers`` or ``weights``."""
        rules: dict[str, tuple[str, ...]] = {str(name): texts for name, texts in self.lamb.items()}
        return {"lamb_a": self.lamb_a, **rules}.get(kind, ())


class StudyPlan(_Section):
    """The seeds that decide, those of the table and those of references; and what to study.

    ``of`` names another study, whose methods, chosen values and rows are taken as they are.
    """

    search_seeds: Seeds
    table_seeds: Seeds
    reference_seeds: Seeds | None = None
    of: str = ""
    benchmarks: dict[str, BenchmarkPlan] = {}
    rules: RulesPlan | None = None

    @model_validator(mode="after")
    def _something(self) -> Self:
        if bool(self.of) == bool(self.benchmarks):
            raise ValueError("give benchmarks, or another study that has them: of")
        if self.of and not self.rules:
            raise ValueError("of names another study, and there are no rules to compare with it")
        return self
