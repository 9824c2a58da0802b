"""Benchmarks by name: their data, network, training and each method's λ."""

from ancl.experiments.benchmarks import BENCHMARKS, Benchmark, benchmark
from ancl.experiments.paper import Expected, Grid, Sourced, expected, grids, reported
from ancl.experiments.presets import PRESETS, preset

__all__ = [
    "BENCHMARKS",
    "PRESETS",
    "Benchmark",
    "Expected",
    "Grid",
    "Sourced",
    "benchmark",
    "expected",
    "grids",
    "preset",
    "reported",
]
