"""Models: from a name, a checkpoint or a module to something that maps images in [0, 1] to logits."""

from fairbench.models.base import Model
from fairbench.models.loading import load_model

__all__ = ["Model", "load_model"]
