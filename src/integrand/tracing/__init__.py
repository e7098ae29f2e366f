"""A model as a list of operations, and going back through them by other rules than the gradient's."""
