"""LwF by Avalanche on photos in one folder per class: ``python avalanche_photos.py SEED``."""

import sys

import torch
from avalanche.benchmarks import nc_benchmark
from avalanche.evaluation.metrics import accuracy_metrics
from avalanche.models import SimpleMLP, as_multitask
from avalanche.training.determinism.rng_manager import RNGManager
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.supervised import LwF
from torch.utils.data import Subset
from torchvision.datasets import ImageFolder
from torchvision.transforms import Compose, Resize, ToTensor

RNGManager.set_random_seeds(int(sys.argv[1]))
photos = ImageFolder("photos", Compose([Resize((16, 16)), ToTensor()]))
order = torch.randperm(len(photos)).tolist()


def part(places):
    images = Subset(photos, places)
    images.targets = [photos.targets[place] for place in places]
    return images


train, test = part(order[len(order) // 5 :]), part(order[: len(order) // 5])
stream = nc_benchmark(train, test, n_experiences=5, task_labels=True, shuffle=False)
network = SimpleMLP(10, input_size=768, hidden_size=256, hidden_layers=2, drop_rate=0)
network = as_multitask(network, "classifier")
strategy = LwF(
    model=network,
    optimizer=torch.optim.SGD(network.parameters(), lr=0.02, momentum=0.9, weight_decay=2e-4),
    criterion=torch.nn.CrossEntropyLoss(),
    alpha=10.0,
    temperature=2.0,
    train_mb_size=32,
    train_epochs=50,
    eval_mb_size=256,
    evaluator=EvaluationPlugin(accuracy_metrics(experience=True), loggers=[]),
)
for task, experience in enumerate(stream.train_stream):
    strategy.train(experience)
    print(task + 1, "of 5 tasks", flush=True)
values = [v for name, v in strategy.eval(stream.test_stream).items() if "Top1_Acc_Exp" in name]
print("accuracy", sum(values) / len(values))
