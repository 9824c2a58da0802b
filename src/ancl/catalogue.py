"""Things by name: one of ours, one of another form such as ``timm:NAME``, or a user's own code."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from ancl.errors import AnclError, did_you_mean
from ancl.outside import FORMS, Loaded, is_outside, load

Thing = TypeVar("Thing")


@dataclass(frozen=True)
class Catalogue(Generic[Thing]):
    """What the names of one kind of thing stand for.

    Args:
        kind: What such a thing is called in messages.
        things: Ours, by name.
        wanted: What a user's own must be, for messages: "a function that returns …".
        error: What to raise where there is no such thing.
        forms: Other ways to name one, as in ``folder:PATH``; what begins like them is no code.
        also: Types of objects that may be named besides functions and classes.
    """

    kind: str
    things: Mapping[str, Thing]
    wanted: str
    error: type[AnclError]
    forms: tuple[str, ...] = ()
    also: tuple[type, ...] = ()

    @property
    def own_forms(self) -> tuple[str, ...]:
        """How to name what is not ours."""
        return (*self.forms, *FORMS)

    @property
    def names(self) -> tuple[str, ...]:
        """All that such a thing may be called."""
        return (*self.things, *self.own_forms)

    def names_code(self, name: str) -> bool:
        """Whether a name stands for a user's own code.

        >>> data = Catalogue[int]("data source", {}, "a function", AnclError, ("folder:PATH",))
        >>> data.names_code("mine.py:load"), data.names_code("folder:mine.py:load")
        (True, False)
        """
        beginnings = tuple(f"{form.partition(':')[0]}:" for form in self.forms)
        return is_outside(name) and not name.startswith(beginnings)

    def find(self, name: str) -> Thing | Loaded:
        """One of ours, or the code that a name stands for.

        Raises:
            AnclError: The catalogue's own kind of error, if there is no such thing.
        """
        if name in self.things:
            return self.things[name]
        if not self.names_code(name):
            raise self.missing(name)
        return load(name, self.wanted, self.error, self.also)

    def code(self, name: str) -> Loaded | None:
        """The code that a name stands for; none for one of ours.

        Raises:
            AnclError: As ``find``.
        """
        thing = self.find(name)
        return thing if isinstance(thing, Loaded) else None

    def missing(self, name: str, near: Iterable[str] = (), possible: str = "") -> AnclError:
        """The error for a name that stands for nothing: the nearest one, and all of them.

        Args:
            name: As it was given.
            near: Among which the nearest is looked for; all names if left out.
            possible: All of them, in words of their own.
        """
        nearest = did_you_mean(name, list(near) or self.names)
        listed = possible or f"{', '.join(self.names)}."
        return self.error(f"There is no {self.kind} {name!r}.{nearest} Possible: {listed}")
