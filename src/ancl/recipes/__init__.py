"""Benchmarks by name: their data, network, training and each method's λ."""

from ancl.recipes.benchmarks import BENCHMARKS, Benchmark, benchmark

__all__ = ["BENCHMARKS", "Benchmark", "benchmark"]
