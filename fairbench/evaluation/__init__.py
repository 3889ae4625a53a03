"""Evaluation: a model, a dataset and a protocol in; an outcome table out."""

from fairbench.evaluation.protocol import Protocol
from fairbench.evaluation.runner import evaluate

__all__ = ["Protocol", "evaluate"]
