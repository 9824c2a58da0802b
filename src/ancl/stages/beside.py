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

    Features are computed once, and classifiers from them: seconds, where training takes minutes.
    What answers in the end, the head or such a classifier, is not known while a network is trained.

    Args:
        work: Of the first task, whose network begins with pretrained weights.
        trained: The network that was trained.
    """
    train, val = work.split.train, work.split.val
    if not len(train):
        return
    if not len(val):
        work.say(
            f"Task {work.index + 1}: no image is held (data.val_fraction=0), so it is not measured "
            f"whether training has cost what the pretrained weights knew."
        )
        return
    head = int(correct_answers(work.answer(trained)(val).logits, val.y, work.view))
    before, after = (_computed_right(work, n, train, val) for n in (work.network(START), trained))
    tolerated = max(_TOLERATED * len(val), 1)  # one image alone says nothing
    shown = {
        name: f"{100 * right / len(val):.1f} %"
        for name, right in (("head", head), ("before", before), ("after", after))
    }
    if after < before - tolerated:
        work.say(
            f"Task {work.index + 1}: training has cost more than it gained. Of {len(val)} held "
            f"images a classifier computed from the features answers {shown['before']} right "
            f"before training and {shown['after']} after it; the trained head {shown['head']}. "
            f"Lower training.lr or training.backbone_factor, let less learn "
            f"(network.trains=affine, adapter or head), or use a method that trains nothing, such "
            f"as slda."
        )
    elif head < before - tolerated:
        work.say(
            f"Task {work.index + 1}: the trained head knows less than the features. Of {len(val)} "
            f"held images it answers {shown['head']} right, and a classifier computed from the "
            f"features {shown['after']} ({shown['before']} before training). If the head is to "
            f"answer, train longer; or let a computed classifier answer (classifier=slda, or the "
            f"method slda, which trains nothing)."
        )


def _computed_right(work: TaskWork, network: Network, train: Samples, val: Samples) -> int:
    """How many held images the better of two classifiers answers right, of these features."""
    features = work.features(network)
    learned, held = features(train), features(val)
    grid = Grid.of(max(float(learned.abs().max()), 1e-6))
    sums = Sums.of(grid.put(learned).rows, train.y, work.history.current.stop)
    classifiers = (cosine_means(sums, grid), discriminant(sums, grid))
    return max(
        int(correct_answers(classifier.scores(held), val.y, work.view))
        for classifier in classifiers
    )
