"""The inputs made by formulas are those the recorded numbers belong to."""

from itertools import islice

from tests.lab import LinearHead


def test_images_weights_and_orders_are_the_recorded_ones(reference) -> None:
    images, heads = {}, {}
    for task in reference.tasks:
        for name in ("train", "val", "test"):
            samples = getattr(task.load(), name)
            images[f"task{task.index}.{name}"] = samples
    head = LinearHead(reference.settings["channels"][1])
    for task in range(3):
        head.grow(4)
        heads |= {f"head{task}.weight": head.weights[task], f"head{task}.bias": head.biases[task]}
    want = reference.load("inputs")
    labels = {name: each.pop("labels_sum") for name, each in want["images"].items()}

    found = reference.compare(
        want,
        {
            "order": {"64": reference.order(64)[:8].tolist()},
            "images": {name: samples.x.dense() for name, samples in images.items()},
            "weights": dict(reference.convolutions().named_parameters()),
            "heads": heads,
            "stream_1": list(islice(reference.stream(1), 6)),
        },
    )

    found.said("inputs")
    assert found.left_out == set()
    assert {name: int(samples.y.sum()) for name, samples in images.items()} == labels
