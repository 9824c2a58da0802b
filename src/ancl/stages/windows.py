"""How the training of a part is cut, in a stream that comes once."""

from dataclasses import dataclass

from ancl.errors import SpecError
from ancl.methods.method import Method

Piece = tuple[int, int]
"""From which image to which, in the order in which a part's images came."""


@dataclass(frozen=True)
class Windows:
    """What is buffered, and when the old network is copied; all are numbers of images.

    Args:
        part: What comes between two evaluations.
        window: What is buffered: the auxiliary network learns it first, then the main one.
        copy: After this many images the old network is a new copy of the main one. If that is more
            than a part, the first copy is made at the end of the first part.
    """

    part: int
    window: int
    copy: int

    @property
    def parts_a_copy(self) -> int:
        """After how many parts the old network is copied; 1 where that is within a part."""
        return max(1, self.copy // self.part)

    def copied_after(self, task: int) -> int:
        """The task at whose end the old network of this one was copied, if not within it."""
        return (task - 1) // self.parts_a_copy * self.parts_a_copy

    def pieces(self, method: Method, count: int) -> list[Piece]:
        """The stretches that the main network learns between what is made anew for it.

        Args:
            method: What has no auxiliary or old network needs no cuts for them.
            count: The number of a part's images.
        """
        auxiliary = [self.window] if method.auxiliary else []
        copied = [self.copy] if method.old and not method.old.stored else []
        return pieces(count, min([*auxiliary, *copied, self.part]))

    def check(self, method: Method) -> None:
        """Refuse a method that cannot learn a part piece by piece.

        Raises:
            SpecError: Naming the setting and the reason.
        """
        copied = method.old is not None and not method.old.stored and self.copy != self.part
        cut = len(self.pieces(method, self.part)) > 1
        reasons = {
            "it follows a training by its whole path": cut and method.watcher,
            "it holds images of a task out of training": cut and method.hold_out,
            "it has a training of its own": cut and (method.trainer or method.main != "train"),
            "it begins every task with a new network": (cut or copied) and method.start == "fresh",
            "it estimates importance where a part ends": copied and method.needs_importance,
            "it corrects answers of the old network": copied and method.infer.changes_learning,
            "its auxiliary network is an epoch ahead all the time, and data.old_every is smaller "
            "than data.window": method.auxiliary
            and method.auxiliary.renewed == "epoch"
            and self.copy < self.window,
        }
        for reason, holds in reasons.items():
            if holds:
                raise SpecError(
                    f"{method.name} learns a part of the stream as a whole: {reason}. Leave out "
                    f"data.window and data.old_every, or use another method, such as lwf."
                )


def pieces(count: int, size: int) -> list[Piece]:
    """Equal stretches of this size; a last one of a single image is joined to the one before it.

    >>> pieces(10, 4), pieces(9, 4)
    ([(0, 4), (4, 8), (8, 10)], [(0, 4), (4, 9)])
    """
    starts = list(range(0, count, size))
    if len(starts) > 1 and count - starts[-1] == 1:
        starts.pop()  # batch norm cannot learn from a single image
    return list(zip(starts, [*starts[1:], count], strict=True))
