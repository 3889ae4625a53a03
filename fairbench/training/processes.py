"""What the processes of one training agree on: means, when to stop, and that only the first of them writes."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fairbench.errors import FairbenchError


class Processes:
    """One process or many, as a Lightning Fabric launched them.

    Parameters
    ----------
    fabric
        The launched Fabric of this process.
    """

    def __init__(self, fabric: Any) -> None:
        self._fabric = fabric
        self.count: int = fabric.world_size
        self.rank: int = fabric.global_rank
        self.is_writer: bool = fabric.is_global_zero

    def mean(self, value: Tensor) -> Tensor:
        """Return the mean over the processes, detached, where the value was."""
        if self.count == 1:
            return value.detach()
        reduced: Tensor = self._fabric.all_reduce(value.detach().to(self._fabric.device), reduce_op="mean")
        return reduced.to(value.device)

    def any(self, flag: bool) -> bool:
        """Whether it is so in any process; each has a clock of its own, and all must stop at the same step."""
        return bool(self.mean(torch.tensor(float(flag))) > 0)

    def share_buffers(self, module: nn.Module) -> None:
        """Give every process the first one's buffers: the statistics of batch norm, gathered from its part."""
        if self.count == 1:
            return
        shared = self._fabric.broadcast({name: value.cpu() for name, value in module.named_buffers()})
        for name, value in module.named_buffers():
            value.copy_(shared[name])

    def let_writer(self, write: Callable[[], None]) -> None:
        """Let the first process write; where it cannot, all raise what it raised, and none waits for it."""
        refused: list[Any] = [None]
        if self.is_writer:
            try:
                write()
            except FairbenchError as error:
                refused = [error]
        if self.count > 1:
            refused = [self._fabric.broadcast(refused[0])]
        if refused[0] is not None:
            raise refused[0]
