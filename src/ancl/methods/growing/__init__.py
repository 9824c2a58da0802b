"""Methods whose network grows or is merged: one paper, one slice."""
