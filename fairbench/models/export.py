"""A loaded model as what a submission packs: plain weights of its architecture, and what was put around it."""

from dataclasses import dataclass

from torch import Tensor, nn

from fairbench.errors import ModelError
from fairbench.models.base import Model, Normalize, PickOutput


@dataclass(frozen=True)
class Exported:
    """What ``load_model(weights, arch=architecture, mean=..., std=..., output=...)`` makes the same model of.

    ``normalization`` is (means, standard deviations) per channel, or None.
    """

    state: dict[str, Tensor]
    architecture: str
    normalization: tuple[tuple[float, ...], tuple[float, ...]] | None
    output: str | None
    input_size: tuple[int, int] | None


def export(model: Model) -> Exported:
    """Take the layers off that loading put around a model.

    Raises
    ------
    ModelError
        It was not built from an architecture and weights, or is normalised twice.
    """
    if model.architecture.startswith("robustbench:"):
        raise ModelError(f"{model.name} is built by RobustBench; submit its checkpoint with --arch.")
    module, output = model.module, None
    if isinstance(module, PickOutput):
        module, output = module.module, str(module.key)
    layers = []
    while isinstance(module, nn.Sequential) and len(module) == 2 and isinstance(module[0], Normalize):
        layers.append(module[0])
        module = module[1]
    if len(layers) > 1:
        raise ModelError(f"{model.name} brings its own normalisation; leave --mean and --std out.")
    normalization = None
    if layers:
        mean, std = (tuple(float(f"{v:.9g}") for v in t.flatten().tolist()) for t in (layers[0].mean, layers[0].std))
        normalization = mean, std
    return Exported(dict(module.state_dict()), model.architecture, normalization, output, model.input_size)
