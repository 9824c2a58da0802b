"""Other people's tools; each is imported only where it is asked for."""

from ancl.integrations.scalars import RunLog, Writer
from ancl.integrations.writers import WRITERS, make_writers

__all__ = ["WRITERS", "RunLog", "Writer", "make_writers"]
