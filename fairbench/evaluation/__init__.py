"""Evaluation: a model, a dataset and a protocol in; an outcome table out.

``evaluate`` is loaded on first use: a protocol is checked without torch.
"""

from typing import TYPE_CHECKING, Any

from fairbench.evaluation.protocol import Protocol

if TYPE_CHECKING:
    from fairbench.evaluation.runner import evaluate

__all__ = ["Protocol", "evaluate"]


def __getattr__(name: str) -> Any:
    if name == "evaluate":
        from fairbench.evaluation.runner import evaluate

        return evaluate
    raise AttributeError(f"module 'fairbench.evaluation' has no attribute {name!r}")
