"""The confidences of a leave-one-out run's models, in files: each chunk's is whole, of this run, and of its models."""

import hashlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fairbench.errors import RecipeError
from fairbench.training.run_folder import write_weights


def any_part(folder: Path) -> bool:
    """Whether a chunk is finished."""
    return any(folder.glob("models_*"))


def write_part(folder: Path, ours: list[int], samples: np.ndarray, confidence: Tensor, seconds: float) -> None:
    """Keep what some models, numbered in a row, said of the test examples.

    Parameters
    ----------
    ours
        The models' numbers.
    samples
        (M,) int64, the sample that each leaves out.
    confidence
        (M, n, K) float32.
    seconds
        Time that their training took.
    """
    held = {"confidence": confidence, "seconds": torch.tensor(seconds, dtype=torch.float64)}
    path = folder / f"models_{ours[0]:05d}-{ours[-1]:05d}.safetensors"
    write_weights(held | {"digest": _digest(confidence, samples)}, path)


def read_parts(folder: Path, members: np.ndarray, examples: int, classes: int) -> dict[int, tuple[np.ndarray, float]]:
    """Return by model its confidences, and its share of the seconds, as far as they are there.

    Parameters
    ----------
    members
        (M,) integers: what each model left out, -1 for none.
    examples, classes
        n and K of the confidences, (n, K) float32 each.

    Raises
    ------
    RecipeError
        A file is damaged, or of another run.
    """
    from safetensors.torch import load_file

    found: dict[int, tuple[np.ndarray, float]] = {}
    for path in sorted(folder.glob("models_*.safetensors")):
        try:
            first, last = map(int, path.stem.partition("_")[2].split("-"))
            held = load_file(path)
            values, seconds = held["confidence"], float(held["seconds"])
            if values.shape != (last - first + 1, examples, classes) or last >= len(members):
                raise ValueError("of another run")
            if not torch.equal(held["digest"], _digest(values, members[first : last + 1])):
                raise ValueError("changed since, or of other models")
        except Exception as error:  # damaged bytes make the reader raise anything
            raise RecipeError(
                f"{path} is not a whole file of this run ({type(error).__name__}); remove it to train those models "
                "again."
            ) from error
        for offset, value in enumerate(values.numpy()):
            found[first + offset] = value, seconds / len(values)
    return found


def _digest(confidence: Tensor, samples: np.ndarray) -> Tensor:
    """Return (32,) uint8 what tells the confidences of these models from damaged ones, and from those of others."""
    made = hashlib.sha256(confidence.contiguous().numpy().tobytes() + samples.astype("<i8").tobytes())
    return torch.tensor(list(made.digest()), dtype=torch.uint8)
