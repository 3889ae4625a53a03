"""Matrices are multiplied in float32 proper while fairbench computes, and the caller's settings come back after."""

import subprocess
import sys

import pytest
import torch

MATMUL = """
import torch
from fairbench.float32 import exact

def state():
    known = [getattr(torch.backends.cuda.matmul, "fp32_precision", None)]
    known += [getattr(torch.backends.mkldnn.matmul, "fp32_precision", None)] if known[0] else []
    try:
        return [*known, torch.get_float32_matmul_precision()]
    except RuntimeError:
        return known

{settings}
before = state()
with exact():
    assert torch.get_float32_matmul_precision() == "highest"
    assert not torch.backends.cuda.matmul.allow_tf32
assert state() == before, (before, state())
"""


@pytest.mark.parametrize(
    "settings",
    [
        "",
        "torch.set_float32_matmul_precision('high')",
        "torch.backends.cuda.matmul.allow_tf32 = True",
        "torch.backends.cuda.matmul.fp32_precision = 'tf32'",
        "torch.backends.mkldnn.matmul.fp32_precision = 'bf16'",
    ],
)
def test_matrices_are_multiplied_in_float32_proper_whatever_the_caller_has_set(settings):
    """In a process of its own: torch keeps some of these for good."""
    if "fp32" in settings and not hasattr(torch.backends.cuda.matmul, "fp32_precision"):
        pytest.skip(f"torch {torch.__version__} has no such setting")
    subprocess.run([sys.executable, "-c", MATMUL.format(settings=settings)], check=True, timeout=300)
