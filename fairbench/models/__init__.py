"""Models: from a name, a checkpoint or a module to something that maps images in [0, 1] to logits.

``Model`` and ``load_model`` are loaded on first use: the cards are read without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairbench.models.base import Model
    from fairbench.models.loading import load_model

_HOMES = {"Model": "fairbench.models.base", "load_model": "fairbench.models.loading"}

__all__ = ["Model", "load_model"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'fairbench.models' has no attribute {name!r}")
