"""Continual learning with auxiliary networks."""
