"""Metrics: pure functions of the outcome table. None of them sees a model, and none needs torch."""

from fairbench.metrics.comparison import compare
from fairbench.metrics.summary import AttackSummary, Summary, summarize

__all__ = ["AttackSummary", "Summary", "compare", "summarize"]
