"""A model as a list of operations, and backward passes through them by rules other than the gradient's."""
