"""Benchmarks by name: their data, network, training and each method's λ."""

from ancl.recipes.benchmarks import BENCHMARKS, Benchmark, benchmark
from ancl.recipes.paper import Expected, Grid, expected, grids, reported
from ancl.recipes.presets import PRESETS, preset
from ancl.recipes.sourced import Sourced

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
