"""Attacks propose; the harness projects, re-scores with the original model and fills the row."""

from fairbench.attacks.base import Attack, Proposal, ThreatModel
from fairbench.attacks.pgd import PGDResult, pgd

__all__ = ["Attack", "PGDResult", "Proposal", "ThreatModel", "pgd"]
