"""How a model is run and differentiated: one file for each framework, found by the type of the tensors."""
