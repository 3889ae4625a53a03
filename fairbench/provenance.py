"""Where a number came from: hashes of what went in, versions of what computed it, the hardware it ran on."""

import hashlib
import json
import os
import platform
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

PACKAGES = ("fairbench", "torch", "torchvision", "pyautoattack", "numpy", "pandas", "pyarrow")
"""The packages whose versions can move a number."""


def versions() -> dict[str, str]:
    """Return the version of Python and of each package in :data:`PACKAGES` that is installed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def hardware(device: str = "cpu") -> dict[str, Any]:
    """Describe the machine: processor, instructions, threads torch uses, and the GPU's name when the device is one."""
    import torch

    described: dict[str, Any] = {"device": device, "processor": _processor(), "instructions": _instructions()}
    described["threads"] = torch.get_num_threads()
    if device.startswith("cuda"):
        described["gpu"] = torch.cuda.get_device_name(device)
    return described


def computes_in_bfloat16(device: str) -> bool:
    """Whether the device has instructions for bfloat16; without them it is emulated, and slower than float32."""
    import torch

    if device.startswith("cuda"):
        return torch.cuda.get_device_capability(device) >= (8, 0)
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported", "_is_arm_bf16_supported"):
        known = getattr(torch.cpu, name, None)
        if known is not None and known():
            return True
    return False


def machines(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Describe as one the machines that computed the batches of an evaluation, each as :func:`hardware` does.

    Examples
    --------
    >>> one, other = ({"device": "cpu", "processor": name, "threads": 2} for name in ("EPYC", "Xeon"))
    >>> machines([one, other, one])
    {'device': 'cpu', 'processor': 'EPYC (2 batches); Xeon (1 batch)', 'threads': 2}
    """
    parts = dict.fromkeys(part for machine in found for part in machine)
    return {
        part: _counted([machine.get(part, "not recorded") for machine in found if part in machine or part != "gpu"])
        for part in parts
    }


def _counted(values: Sequence[Any]) -> Any:
    """Return the value that all have, or each with the number of its batches."""
    counts = Counter(values)
    if len(counts) == 1:
        return values[0]
    return "; ".join(f"{value} ({n} batch{'' if n == 1 else 'es'})" for value, n in counts.most_common())


def _instructions() -> str:
    """Return what torch's kernels use: processors of one name differ, and so do results in the last digits."""
    import torch

    return f"{torch.backends.cpu.get_cpu_capability()}{', bf16' if computes_in_bfloat16('cpu') else ''}"


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if sys.platform == "linux" and cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return f"{line.split(':', 1)[1].strip()}, {os.cpu_count()} cores"
    return f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"


def sha256_bytes(*parts: bytes) -> str:
    """Hash the parts in order; each is preceded by its length, so that moving a border changes the hash."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def sha256_plain(data: bytes) -> str:
    """Hash bytes as ``sha256sum`` does."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path) -> str:
    """Hash a file's bytes (as ``sha256sum`` does)."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def sha256_array(*arrays: np.ndarray) -> str:
    """Hash arrays by type, shape and bytes."""
    parts = [part for a in arrays for part in (f"{a.dtype.str}{a.shape}".encode(), np.ascontiguousarray(a).tobytes())]
    return sha256_bytes(*parts)


def sha256_state(state: Mapping[str, Any]) -> str:
    """Hash a state_dict by key, type, shape and bytes, whatever file format it came from."""
    import torch

    parts: list[bytes] = []
    for key in sorted(state):
        if not isinstance(state[key], torch.Tensor):  # what a module of one's own keeps beside its tensors
            parts.append(f"{key}:{_spelt(state[key])}".encode())
            continue
        tensor = state[key].detach().cpu().contiguous()
        parts.append(f"{key}:{tensor.dtype}:{tuple(tensor.shape)}".encode())
        parts.append(tensor.flatten().view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
    return sha256_bytes(*parts)


def _spelt(value: Any) -> str:
    """Return plain data as JSON, of anything else the type: its own words may hold an address."""
    try:
        return json.dumps(value, sort_keys=True)
    except (TypeError, ValueError):
        return type(value).__name__


def sha256_json(value: Any) -> str:
    """Hash plain data by its canonical JSON."""
    return sha256_bytes(json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode())


def source_revision() -> str | None:
    """Return the commit of the source tree this package lies in, marked where it has changes; None if installed."""
    root = Path(__file__).parents[1]
    if not (root / ".git").exists():
        return None
    try:
        found = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude", "*"],
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None
