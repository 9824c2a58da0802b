"""Readers of the formats that data is published in."""
