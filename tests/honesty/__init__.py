"""Does the error estimate hold? A corpus with known or converged answers, and the test of the claim."""
