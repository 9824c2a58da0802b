"""One thread for all tests: small tensors are slower with more, and bits depend on the count."""

import torch

torch.set_num_threads(1)
