"""iCaRL by Avalanche, all classes compete: ``python avalanche_icarl.py SEED``."""

import sys

import numpy as np
import torch
from avalanche.benchmarks import nc_benchmark
from avalanche.checkpointing import maybe_load_checkpoint, save_checkpoint  # to resume
from avalanche.evaluation.metrics import accuracy_metrics
from avalanche.training.determinism.rng_manager import RNGManager
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.supervised import ICaRL
from torch import nn

RNGManager.set_random_seeds(int(sys.argv[1]))
arrays = np.load("stream.npz")
mean, std = arrays["x_train"].mean() / 255, arrays["x_train"].std() / 255


def part(name):
    x = (torch.from_numpy(arrays[f"x_{name}"]).float().squeeze(3).unsqueeze(1) / 255 - mean) / std
    images = torch.utils.data.TensorDataset(x, torch.from_numpy(arrays[f"y_{name}"]))
    images.targets = arrays[f"y_{name}"].tolist()
    return images


stream = nc_benchmark(
    part("train"), part("test"), n_experiences=5, task_labels=False, shuffle=False
)
features = nn.Sequential(
    nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU()
)
classifier = nn.Linear(256, 10)
weights = [*features.parameters(), *classifier.parameters()]
strategy = ICaRL(
    feature_extractor=features,
    classifier=classifier,
    optimizer=torch.optim.SGD(weights, lr=0.02, momentum=0.9, weight_decay=2e-4),
    memory_size=20,
    buffer_transform=None,
    fixed_memory=False,
    train_mb_size=32,
    train_epochs=50,
    eval_mb_size=256,
    evaluator=EvaluationPlugin(accuracy_metrics(experience=True), loggers=[]),
)
first = 0
strategy, first = maybe_load_checkpoint(strategy, f"checkpoint{sys.argv[1]}.pkl")  # to resume
for task, experience in enumerate(stream.train_stream[first:], start=first):
    strategy.train(experience)
    strategy.eval(stream.test_stream[: task + 1])
    save_checkpoint(strategy, f"checkpoint{sys.argv[1]}.pkl")  # to resume
    print(task + 1, "of 5 tasks", flush=True)
values = [v for name, v in strategy.eval(stream.test_stream).items() if "Top1_Acc_Exp" in name]
print("accuracy", sum(values) / len(values))
