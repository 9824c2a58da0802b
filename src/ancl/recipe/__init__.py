"""Recipes: what decides a run or a learner, checked, and made into objects."""
