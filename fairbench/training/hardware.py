"""Where to train: one process or many, as Lightning Fabric names it."""

import inspect
import logging
import os
from dataclasses import dataclass
from typing import Any

from fairbench.errors import RecipeError, first_line


@dataclass(frozen=True)
class Hardware:
    """Where to train: as Lightning Fabric names it."""

    accelerator: str = "auto"
    devices: int | str = 1
    nodes: int = 1
    compile: bool = False


def launch(hardware: Hardware, precision: str) -> Any:
    """Start the processes and return this one's Fabric; ``precision`` is a recipe's, "32" or "bf16".

    Raises
    ------
    RecipeError
        Several nodes without torchrun, or a device that is not there.
    """
    from lightning.fabric import Fabric

    if hardware.nodes > 1 and not {"WORLD_SIZE", "SLURM_NTASKS"} & set(os.environ):
        raise RecipeError(f"--nodes {hardware.nodes}: start it on each machine with torchrun (docs/torchrun.md).")
    distributed = hardware.devices not in (1, "1") or hardware.nodes > 1
    try:
        fabric = Fabric(
            accelerator=hardware.accelerator,
            devices=hardware.devices,
            num_nodes=hardware.nodes,
            strategy=_distributed() if distributed else "auto",
            precision="bf16-mixed" if precision == "bf16" else "32-true",
        )
    except Exception as error:  # Lightning has its own kinds
        asked = f"--device {hardware.accelerator}, --devices {hardware.devices}, --nodes {hardware.nodes}"
        raise RecipeError(f"{asked}: {first_line(error)}") from error
    fabric.launch()
    return fabric


def _distributed() -> Any:
    """Return a strategy that averages gradients and leaves the statistics of batch norm to each process."""
    from lightning.fabric.strategies import DDPStrategy
    from torch.nn.parallel import DistributedDataParallel

    for name in ("lightning.fabric", "lightning.pytorch"):  # no banner
        logging.getLogger(name).setLevel(logging.WARNING)
    known = inspect.signature(DistributedDataParallel.__init__).parameters
    option = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"  # its older name
    options: Any = {option: False}
    return DDPStrategy(**options)
