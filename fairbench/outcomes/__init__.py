"""The outcome table: one row per test example. Everything after an attack is a function of it."""

from fairbench.outcomes.table import Outcomes

__all__ = ["Outcomes"]
