"""LwF by ancl on a folder of photos, one folder per class: ``python ancl_photos.py SEED``."""

import sys

import ancl

result = ancl.run(
    "lwf",
    data=dict(source="folder:photos@16", tasks=5, val_fraction=0),
    network="mlp",
    training=dict(epochs=50, lr=0.02, batch_size=32, schedule="constant"),
    lamb=10,
    seed=int(sys.argv[1]),
    threads=1,
)
print("accuracy", result.metrics["final_accuracy"])
