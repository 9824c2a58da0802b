"""Where the results of runs are."""

from pathlib import Path
from typing import NamedTuple, Self


class Places(NamedTuple):
    """Directories: of results, of stored stages, and of data, if it was named."""

    runs: Path
    store: Path
    data: Path | None = None

    @classmethod
    def of(
        cls, runs: str | Path, store: str | Path | None = None, data: str | Path | None = None
    ) -> Self:
        """The store is ``.store`` below the results unless another directory is named."""
        place = Path(store) if store else Path(runs) / ".store"
        return cls(Path(runs), place, Path(data) if data else None)
