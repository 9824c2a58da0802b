"""Whether pretrained weights have lost what they knew: beside a classifier on them as they were."""

from ancl.data import Samples
from ancl.losses import correct_answers
from ancl.methods.work import TaskWork
from ancl.networks import Network
from ancl.state import START
from ancl.statistics import Grid, Sums, cosine_means, discriminant

_TOLERATED = 0.02


def warn_if_lost(work: TaskWork, trained: Network) -> None:
    """Say if held images are answered worse than by the features before training.

    These are computed once, and the classifiers from them: seconds, where training takes minutes.

    Args:
        work: Of the first task, whose network begins with pretrained weights.
        trained: The network that was trained.
    """
    train, val = work.split.train, work.split.val
    if not len(val) or not len(train):
        return
    logits = work.answer(trained)(val).logits
    share = int(correct_answers(logits, val.y, work.view)) / len(val)
    frozen = max(_frozen_right(work, train, val)) / len(val)
    if share < frozen - _TOLERATED:
        work.say(
            f"Task {work.index + 1}: training has cost more than it gained. Of {len(val)} held "
            f"images the network answers {100 * share:.1f} % right, and a classifier computed from "
            f"its features before training {100 * frozen:.1f} %. Lower training.lr or "
            f"training.backbone_factor, let less learn (network.trains=affine, adapter or head), "
            f"or use a method that trains nothing, such as slda."
        )


def _frozen_right(work: TaskWork, train: Samples, val: Samples) -> list[int]:
    """How many held images two classifiers answer right that are computed from old features."""
    features = work.features(work.network(START))
    learned, held = features(train), features(val)
    grid = Grid.of(max(float(learned.abs().max()), 1e-6))
    sums = Sums.of(grid.put(learned).rows, train.y, work.history.current.stop)
    classifiers = (cosine_means(sums, grid), discriminant(sums, grid))
    return [
        int(correct_answers(classifier.scores(held), val.y, work.view))
        for classifier in classifiers
    ]
