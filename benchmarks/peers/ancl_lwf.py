"""LwF by ancl, the task known at test time: ``python ancl_lwf.py SEED``."""

import sys

import ancl

result = ancl.run(
    "lwf",
    data=dict(source="arrays:stream.npz", tasks=5, val_fraction=0),
    network="mlp",
    training=dict(epochs=50, lr=0.02, batch_size=32, schedule="constant"),
    lamb=10,
    seed=int(sys.argv[1]),
    threads=1,
)
print("accuracy", result.metrics["final_accuracy"])
