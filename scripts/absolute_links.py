"""Make the relative links of a page absolute, for readers outside of the repository.

Run:  python scripts/absolute_links.py README.md https://github.com/OWNER/NAME v0.3.0
"""

import re
import sys
from pathlib import Path

IMAGES = (".png", ".jpg", ".svg", ".gif")


def absolute(page: str, repository: str, version: str) -> str:
    """The page, with every relative link and image pointing into the repository."""

    def link(found: re.Match[str]) -> str:
        place = found[1]
        if "://" in place or place.startswith("#"):
            return found[0]
        kind = "raw" if place.lower().endswith(IMAGES) else "blob"
        return f"]({repository}/{kind}/{version}/{place})"

    return re.sub(r"\]\(([^)\s]+)\)", link, page)


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(absolute(file.read_text(encoding="utf-8"), *sys.argv[2:4]), encoding="utf-8")
