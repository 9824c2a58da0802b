"""From outputs to scores: class means by hand, and corrected logits."""

import pytest
import torch
from torch import Tensor

from ancl.extend import Output
from tests.lab import Argmax, Corrected, Exemplars, InferenceInputs, NearestMean, Samples


def known(features: dict[int, list[float]], labels: list[int]) -> InferenceInputs:
    """Images whose first pixel names them; a mirrored one has it last."""
    x = torch.zeros(len(labels), 1, 2, 1, dtype=torch.uint8)
    x[:, 0, 0, 0] = torch.arange(1, len(labels) + 1)
    count = len(labels)
    memory = Exemplars(
        Samples(x, torch.tensor(labels)), torch.zeros(count), torch.zeros(count, dtype=torch.bool)
    )

    def answer(samples: Samples) -> Output:
        left, right = samples.x.dense()[:, 0, 0, 0].long(), samples.x.dense()[:, 0, 1, 0].long()
        rows = torch.tensor([features[int(a - b)] for a, b in zip(left, right, strict=True)])
        return Output(torch.zeros(len(rows), max(labels) + 1), rows)

    return InferenceInputs(answer, max(labels) + 1, memory)


def scores(infer: NearestMean, looked: InferenceInputs, query: list[float]) -> Tensor:
    output = Output(torch.zeros(1, looked.classes), torch.tensor([query]))
    return infer.scorer(looked)(output)[0]


def test_a_class_mean_is_that_of_unit_features_and_of_mirror_images() -> None:
    # Images 1 and 2 of class 0 with features (3, 4), (0, 2), their mirrors (4, 3), (1, 0).
    looked = known({1: [3, 4.0], 2: [0, 2.0], -1: [4, 3.0], -2: [1, 0.0]}, [0, 0])
    samples = looked.exemplars.part(held=False)

    mirrored, plain = NearestMean(), NearestMean(mirrored=False)

    assert mirrored.means(samples, looked)[0].tolist() == pytest.approx([0.707107] * 2, abs=1e-6)
    assert plain.means(samples, looked)[0].tolist() == pytest.approx([0.316228, 0.948683], abs=1e-6)
    # Squared distances of the query (1, 1.2), whose length does not count.
    for query in ([1, 1.2], [10, 12.0]):
        assert scores(mirrored, looked, query).tolist() == pytest.approx([-0.008214], abs=1e-6)
        assert scores(plain, looked, query).tolist() == pytest.approx([-0.137514], abs=1e-6)
    output = Output(torch.zeros(1, 1), torch.tensor([[1, 1.2]]))
    other = plain.scores(output, {"means": torch.tensor([[0.2, 1.0]]) / 1.04**0.5})
    assert other.tolist()[0] == pytest.approx([-0.242293], abs=1e-6)


def test_without_a_memory_the_logits_decide() -> None:
    output = Output(torch.tensor([[1.0, 3.0]]), torch.ones(1, 2))

    looked = InferenceInputs(lambda samples: output, 2)

    assert NearestMean().scorer(looked)(output).tolist() == [[1.0, 3.0]]
    assert Argmax().scorer(looked)(output).tolist() == [[1.0, 3.0]]


def test_the_newest_classes_are_corrected_and_later_ones_left_alone() -> None:
    output = Output(torch.tensor([[2.0, 1.0, 3.0, 7.0]]), torch.ones(1, 2))
    extra = {"scale": torch.tensor([1.0, 1.0, 0.5]), "shift": torch.tensor([0.0, 0.0, -1.0])}

    corrected = Corrected().correct(output, extra).logits

    assert corrected.tolist() == [[2.0, 1.0, 0.5, 7.0]]
    assert corrected[:, :3].argmax().item() == 0
    assert output.logits[:, :3].argmax().item() == 2
    assert Corrected().correct(output, {}) is output


def test_the_student_is_corrected_only_where_asked() -> None:
    extra = {"scale": torch.tensor([2.0]), "shift": torch.tensor([1.0])}
    logits = torch.tensor([[3.0]], requires_grad=True)

    student = Corrected(correct_student=True).student(extra)

    assert Corrected().student(extra) is None
    assert student is not None
    found = student(Output(logits, logits)).logits
    found.sum().backward()
    assert (found.item(), logits.grad.item()) == (7.0, 2.0)
