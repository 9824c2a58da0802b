import math

import pytest
import torch
from torch import Tensor

from ancl.data import Domain, domains
from ancl.errors import ScenarioError
from ancl.experiments.data_spec import DataSpec
from ancl.seeding import generator


def images(n: int = 5, side: int = 9, channels: int = 3) -> Tensor:
    shape = (n, side, side, channels)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator(4))


EVERY = [
    Domain("rotation", 40.0),
    Domain("permutation", 2),
    *(Domain("corruption", f"{name}3") for name in ("noise", "blur", "contrast", "brightness")),
]


@pytest.mark.parametrize("domain", EVERY, ids=lambda d: f"{d.kind}-{d.value}")
def test_a_domain_is_a_function_of_each_image_alone(domain: Domain) -> None:
    x = images()
    before = x.clone()
    seen = domain(x)
    assert (seen.shape, seen.dtype) == (x.shape, torch.uint8)
    assert torch.equal(x, before)
    assert not torch.equal(seen, x)
    order = torch.tensor([3, 0, 4, 1, 2])
    assert torch.equal(domain(x[order]), seen[order])
    assert torch.equal(domain(x[2:3]), seen[2:3])


@pytest.mark.parametrize(
    ("kind", "value"), [("rotation", 0.0), ("permutation", 0), ("corruption", "none")]
)
def test_the_first_domain_leaves_images_as_they_are(kind: str, value: float | str) -> None:
    assert domains(kind, 3)[0] == Domain(kind, value)
    x = images()
    assert torch.equal(Domain(kind, value)(x), x)


def test_right_angles_turn_pixels_exactly() -> None:
    x = images()
    for turns in range(-1, 4):
        assert torch.equal(Domain("rotation", 90.0 * turns)(x), x.rot90(turns, (1, 2)))


def test_rotation_weighs_the_four_nearest_pixels_about_the_middle() -> None:
    x, degrees = images(1, 7, 1), 25.0
    seen = Domain("rotation", degrees)(x)[0, :, :, 0]
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    for row in range(7):
        for column in range(7):
            c, r = column - 3, row - 3
            across, down = c * cosine - r * sine + 3, c * sine + r * cosine + 3
            total = 0.0
            for i in range(7):
                for j in range(7):
                    near = max(0, 1 - abs(i - down)) * max(0, 1 - abs(j - across))
                    total += near * float(x[0, i, j, 0])
            assert abs(float(seen[row, column]) - total) <= 0.51


def test_a_permutation_moves_whole_pixels_and_is_one_of_its_own() -> None:
    x = images()
    first, second = Domain("permutation", 1)(x), Domain("permutation", 2)(x)
    assert not torch.equal(first, second)
    for seen in (first, second):
        pixels = [sorted(map(tuple, part.view(-1, 3).tolist())) for part in (x[0], seen[0])]
        assert pixels[0] == pixels[1]
    # The same for every image: two equal pixels of two images go to the same place.
    marked = torch.zeros(2, 9, 9, 1, dtype=torch.uint8)
    marked[:, 4, 5] = 255
    moved = Domain("permutation", 1)(marked)
    assert torch.equal(moved[0], moved[1])
    floats = torch.rand(3, 10, generator=generator(0))
    assert torch.equal(Domain("permutation", 1)(floats).sort(1).values, floats.sort(1).values)


def test_noise_is_near_to_gaussian_grows_with_the_level_and_differs_between_images() -> None:
    grey = torch.full((40, 32, 32, 1), 128, dtype=torch.uint8)
    grey[:, 0, 0, 0] = torch.arange(40)  # so that no two images are the same
    noise = {level: Domain("corruption", f"noise{level}")(grey).double() - 128 for level in (1, 2)}
    inner = {level: part[:, 1:] for level, part in noise.items()}
    # Level 1 has a deviation of 8 % of the range: 20.4 levels; level 2 twice that.
    assert inner[1].std().item() == pytest.approx(20.4, rel=0.03)
    assert inner[2].std().item() == pytest.approx(40.8, rel=0.03)
    assert inner[1].mean().abs() < 0.5
    within = (inner[1].abs() < 20.4).double().mean().item()
    assert within == pytest.approx(0.68, abs=0.03)
    flat = inner[1].flatten(1)
    assert torch.corrcoef(flat).fill_diagonal_(0).abs().max() < 0.15
    assert len({tuple(row.tolist()) for row in flat}) == 40


def test_blur_contrast_and_brightness_by_hand() -> None:
    spot = torch.zeros(1, 5, 5, 1, dtype=torch.uint8)
    spot[0, 2, 2] = 90
    blurred = Domain("corruption", "blur1")(spot)[0, :, :, 0]
    assert blurred[1:4, 1:4].tolist() == [[10] * 3] * 3
    assert int(blurred.sum()) == 90
    two = torch.tensor([100, 200], dtype=torch.uint8).view(1, 1, 2, 1)
    # About their mean 150, (1 - 0.17 · 2) = 0.66 of 50 is 33 away.
    assert Domain("corruption", "contrast2")(two).flatten().tolist() == [117, 183]
    assert Domain("corruption", "brightness2")(two).flatten().tolist() == [160, 255]


def test_domains_of_a_number_of_tasks() -> None:
    assert [d.value for d in domains("rotation", 4)] == [0, 45, 90, 135]
    assert [d.value for d in domains("permutation", 3)] == [0, 1, 2]
    corruptions = [d.value for d in domains("corruption", 7)]
    assert corruptions == ["none", "noise1", "blur1", "contrast1", "brightness1", "noise2", "blur2"]


def test_domains_listed_by_value() -> None:
    assert [d.value for d in domains("rotation:0, 15,40", None)] == [0, 15, 40]
    assert [d.value for d in domains("corruption:blur3,none", 2)] == ["blur3", "none"]


@pytest.mark.parametrize(
    ("text", "tasks", "message"),
    [
        (None, 3, "no domains. Possible: rotation, permutation, corruption"),
        ("rotate", 3, "domains 'rotate'. Possible: rotation"),
        ("rotation", None, "needs the number of tasks"),
        ("rotation", 0, "0 tasks were asked for"),
        ("rotation:0,30", 3, "2 domains were listed for 3 tasks"),
        ("rotation:0,north", None, "'north' in data.domains=rotation:… is not an angle"),
        ("permutation:-1", None, "'-1' in .* is not a number"),
        ("corruption:blur9", None, r"no corruption 'blur9'.*'blur1'.*Levels are 1 to 5"),
        ("corruption", 22, "There are 21 corruptions, and 22 tasks"),
    ],
)
def test_domains_that_do_not_exist_are_refused(
    text: str | None, tasks: int | None, message: str
) -> None:
    with pytest.raises(ScenarioError, match=message):
        domains(text, tasks)


def test_floats_can_only_be_permuted() -> None:
    with pytest.raises(ScenarioError, match=r"domains=rotation works on uint8.*permutation"):
        Domain("rotation", 30.0)(torch.rand(2, 3, 4, 4))


def test_a_spec_knows_the_sizes_of_domains_before_it_reads_an_image() -> None:
    spec = DataSpec(source="digits", scenario="dil", domains="rotation:0,30,60", order=(1, 2, 7))
    assert spec.sizes() == (3, 3, 3)
    assert DataSpec(scenario="dil", domains="permutation", tasks=2).sizes() == (10, 10)
    with pytest.raises(ScenarioError, match="for the scenario dil"):
        DataSpec(domains="rotation", tasks=5).sizes()
