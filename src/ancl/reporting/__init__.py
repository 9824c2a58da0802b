"""Stored results as tables, figures and one HTML page. Deterministic; nothing is trained."""
