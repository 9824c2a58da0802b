"""Methods as data: what each is composed of, and how it is found by name."""
