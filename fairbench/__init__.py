"""fairbench: which class does your model fail to protect, and by how much?

The public API is the names of ``__all__``, loaded on first use so that ``import fairbench`` (and with it the metrics,
the reports and the leaderboard) needs no torch.

Examples
--------
>>> from fairbench import evaluate, load_dataset, load_model, summarize
>>> outcomes = evaluate(load_model("natural_resnet18"), load_dataset("cifar10", "sample"))  # doctest: +SKIP
>>> summarize(outcomes).attacks["pgd20"].worst_rob                                           # doctest: +SKIP
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairbench.datasets import load_dataset
    from fairbench.evaluation import Protocol, evaluate
    from fairbench.evaluation.inputs import load_inputs
    from fairbench.metrics import compare, summarize
    from fairbench.models import load_model
    from fairbench.outcomes import Outcomes

try:
    __version__ = version("fairbench")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

_HOMES = {
    "evaluate": "fairbench.evaluation",
    "Protocol": "fairbench.evaluation",
    "load_model": "fairbench.models",
    "load_dataset": "fairbench.datasets",
    "load_inputs": "fairbench.evaluation.inputs",
    "Outcomes": "fairbench.outcomes",
    "summarize": "fairbench.metrics",
    "compare": "fairbench.metrics",
}

__all__ = [
    "Outcomes",
    "Protocol",
    "__version__",
    "compare",
    "evaluate",
    "load_dataset",
    "load_inputs",
    "load_model",
    "summarize",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'fairbench' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
