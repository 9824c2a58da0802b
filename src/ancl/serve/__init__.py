"""An exported learner that answers over HTTP, with ONNX Runtime and without torch."""
