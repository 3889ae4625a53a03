"""What several attacks compute for each example of a batch."""

import torch
from torch import Tensor


def margin(logits: Tensor, y: Tensor) -> Tensor:
    """Return (B,) the logit of the label minus the largest other one; negative where the prediction is wrong."""
    own = logits.gather(1, y[:, None])[:, 0]
    return own - logits.scatter(1, y[:, None], -torch.inf).amax(1)


def beside(values: Tensor, x: Tensor) -> Tensor:
    """Give (B,) values the dimensions of ``x`` (B, ...), to be broadcast."""
    return values.view(-1, *[1] * (x.ndim - 1))
