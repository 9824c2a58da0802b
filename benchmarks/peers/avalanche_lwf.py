"""LwF by Avalanche, the task known at test time: ``python avalanche_lwf.py SEED``."""

import sys

import numpy as np
import torch
from avalanche.benchmarks import nc_benchmark
from avalanche.checkpointing import maybe_load_checkpoint, save_checkpoint  # to resume
from avalanche.evaluation.metrics import accuracy_metrics
from avalanche.models import SimpleMLP, as_multitask
from avalanche.training.determinism.rng_manager import RNGManager
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.supervised import LwF

RNGManager.set_random_seeds(int(sys.argv[1]))
arrays = np.load("stream.npz")
mean, std = arrays["x_train"].mean() / 255, arrays["x_train"].std() / 255


def part(name):
    x = (torch.from_numpy(arrays[f"x_{name}"]).float().squeeze(3).unsqueeze(1) / 255 - mean) / std
    images = torch.utils.data.TensorDataset(x, torch.from_numpy(arrays[f"y_{name}"]))
    images.targets = arrays[f"y_{name}"].tolist()
    return images


stream = nc_benchmark(part("train"), part("test"), n_experiences=5, task_labels=True, shuffle=False)
network = SimpleMLP(10, input_size=64, hidden_size=256, hidden_layers=2, drop_rate=0)
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
first = 0
strategy, first = maybe_load_checkpoint(strategy, f"checkpoint{sys.argv[1]}.pkl")  # to resume
for task, experience in enumerate(stream.train_stream[first:], start=first):
    strategy.train(experience)
    strategy.eval(stream.test_stream[: task + 1])
    save_checkpoint(strategy, f"checkpoint{sys.argv[1]}.pkl")  # to resume
    print(task + 1, "of 5 tasks", flush=True)
values = [v for name, v in strategy.eval(stream.test_stream).items() if "Top1_Acc_Exp" in name]
print("accuracy", sum(values) / len(values))
