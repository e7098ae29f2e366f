"""From evaluations to an integral with an error estimate: fixed rules, adaptive refinement, linear regions."""
