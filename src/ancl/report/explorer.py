"""What the trade-off explorer shows of an analysis: for each seed, a point for every λ_a."""

from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
_REFERENCES = ("old", "auxiliary", "multi")
_ANCHORS = (*_REFERENCES, "cl")


def explorable(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Distances, CKA, accuracies and places on the landscape, seed by seed.

    Raises:
        KeyError: The analysis is not one of ours.
    """
    told = found["spec"]["data"]["scenario"] == "til"
    return [
        {
            "method": found["method"],
            "benchmark": found["benchmark"],
            "lamb": found["lamb"],
            "seed": seed,
            **_Seed(found["tables"], seed, "taw" if told else "tag").shown(),
        }
        for seed in found["seeds"]
    ]


class _Seed:
    """The tables of an analysis, for one seed.

    Args:
        tables: Rows by table.
        seed: The seed.
        accuracy: The accuracy that counts in the scenario.
    """

    def __init__(self, tables: Mapping[str, Sequence[Row]], seed: int, accuracy: str) -> None:
        self._tables, self._seed, self._accuracy = tables, seed, accuracy

    def rows(self, table: str, **wanted: Any) -> list[Row]:
        rows = self._tables.get(table, [])
        wanted["seed"] = self._seed
        return [row for row in rows if all(row[name] == value for name, value in wanted.items())]

    def shown(self) -> dict[str, Any]:
        lamb_as = sorted(row["lamb_a"] for row in self.rows("distance", network="ancl"))
        return {
            "points": [{"lamb_a": value, **self.network("ancl", value)} for value in lamb_as],
            "cl": self.network("cl", None),
            "anchors": {name: self.place(name, None) for name in _ANCHORS},
            "landscape": self.landscape(),
        }

    def network(self, name: str, lamb_a: float | None) -> dict[str, Any]:
        which = {"network": name, "lamb_a": lamb_a}
        accuracy = self.rows("accuracy", **which)
        return {
            "place": self.place(name, lamb_a),
            "distances": _references(self.rows("distance", **which)),
            "cka": _references(self.rows("cka", layer="mean", **which)),
            "accuracy": {
                key: value
                for row in accuracy[:1]
                for key, value in row.items()
                if key == "mean" or key.startswith("task ")
            },
        }

    def place(self, name: str, lamb_a: float | None) -> list[float] | None:
        """Coordinates on the plane in Euclidean units, and the distance from it."""
        rows = self.rows("positions", network=name, lamb_a=lamb_a, task="mean")
        row = rows[0] if rows else None
        return [row["x_length"], row["y_length"], row["residual"]] if row else None

    def landscape(self) -> dict[str, Any] | None:
        rows = self.rows("landscape", task="mean")
        if not rows:
            return None
        xs, ys = (sorted({row[name] for row in rows}) for name in ("x_length", "y_length"))
        values = {(row["x_length"], row["y_length"]): row[self._accuracy] for row in rows}
        return {"xs": xs, "ys": ys, "accuracy": [[values[x, y] for x in xs] for y in ys]}


def _references(rows: Sequence[Row]) -> dict[str, float]:
    return {name: row[name] for row in rows[:1] for name in _REFERENCES}
