"""Experiments: runs, comparisons, searches and studies."""
