"""Side by side with Captum, in one run, on this machine: `python -m benchmarks` or `make bench`."""
