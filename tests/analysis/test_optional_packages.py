"""What needs neither matplotlib nor Hypothesis works where they are not installed."""

import subprocess
import sys

PROGRAM = """
import sys
for name in ("matplotlib", "hypothesis"):
    sys.modules[name] = None  # to import it would raise
import torch
from integrand.axioms import check, network
from integrand.baselines import diagnose
from integrand.comparison import compare
from integrand.methods import Gradient, IntegratedGradients
f, x = network("1 - relu(1 - x1) + x2"), torch.tensor([[2.0, 1.0]]).double()
assert not check(Gradient(), "sensitivity-a", f, x).kept
assert f.formula.svg().startswith("<svg")
assert "<html" in compare(f, x, methods=[Gradient(), IntegratedGradients()]).report()
assert "<html" in diagnose(f, x, ["zero"], score="logit").report()
print("done")
"""


def test_checks_and_reports_need_no_optional_package():
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert ran.stdout.strip() == "done", ran.stderr
