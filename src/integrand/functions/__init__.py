"""What is explained: a model, what it is called with, and which number of its output is the score."""
