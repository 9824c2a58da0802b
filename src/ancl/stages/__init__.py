"""Learning a task as a chain of stages with keys: plan, compute, store."""
