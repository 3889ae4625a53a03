"""Metrics: pure functions of the outcome table. None of them sees a model, and none needs torch."""

from fairbench.metrics.comparison import compare
from fairbench.metrics.summary import AttackSummary, Summary, summarize
from fairbench.metrics.union import with_union

__all__ = ["AttackSummary", "Summary", "compare", "summarize", "with_union"]
