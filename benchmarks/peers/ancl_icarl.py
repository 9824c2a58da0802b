"""iCaRL by ancl, all classes compete: ``python ancl_icarl.py SEED``."""

import sys

import ancl

result = ancl.run(
    "icarl",
    data=dict(source="arrays:stream.npz", tasks=5, val_fraction=0, scenario="cil"),
    network="mlp",
    training=dict(epochs=50, lr=0.02, batch_size=32, schedule="constant"),
    memory=20,
    seed=int(sys.argv[1]),
    threads=1,
)
print("accuracy", result.metrics["final_accuracy"])
