"""The training loop, the loss it minimises, and AFEC's two trainings in turn."""
