"""Experiments: specs, benchmarks, runs, comparisons, searches and studies."""

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
