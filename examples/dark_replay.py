"""DER++: replay batches of the memory, held to the logits they were stored with.

    L = CE(task's batch) + λ · Ω(stored logits) + β · CE(replay batch),  Ω = mean (z − z*)²

z* are the logits at the end of the task that stored the image, over the classes known then; both
terms of the replay batch read one draw. λ is α of the authors. With an auxiliary network (a-) the
same Ω holds the task's batch to its logits over the task's classes: + λ_a · Ω(auxiliary network).
Differs: the authors store logits while a task is learned, of a fixed head.

    ancl run examples/dark_replay.py:dark_replay digits/5 --scenario cil
    ancl run a-examples/dark_replay.py:dark_replay digits/5 --scenario cil --lamb 0.5
    ancl search a-examples/dark_replay.py:dark_replay digits/5 --scenario cil

It and LwF with the same memory of 20 images a class:

    ancl compare lwf examples/dark_replay.py:dark_replay a-examples/dark_replay.py:dark_replay
        --on digits/5 --scenario cil --seeds 0-2 --set memory.per_class=20
"""

from typing import Annotated

from annotated_types import Ge

from ancl import Memory, Method
from ancl.extend import CrossEntropy, LogitDistance, Replayed, StoredLogits, Term


def dark_replay(
    *, lamb: Annotated[float, Ge(0)] = 0.1, beta: Annotated[float, Ge(0)] = 0.5
) -> Method:
    """Dark experience replay (DER++).

    Args:
        lamb: λ, the pull to the stored logits.
        beta: β, the weight of the replay batch's own task loss.
    """
    return Method(
        "dark_replay",
        old=Term(LogitDistance(), lamb, stored=True),
        extras=(Replayed("replay", CrossEntropy(), beta),) if beta else (),
        memory=Memory(per_class=20, batch=32),
        records=(StoredLogits(),),
    )
