"""Benchmarks by name: their data, network, training and each method's λ."""

from ancl.experiments.benchmarks import BENCHMARKS, PRESETS, Benchmark, benchmark, preset
from ancl.experiments.paper import Expected, Grid, Sourced, expected, grids, reported

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
