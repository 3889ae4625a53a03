"""What memory is free: the machine's, and what limits of control groups leave of it."""

from pathlib import Path

import pytest

from fairbench.memory import free_memory

GB = 10**9


def machine(root: Path, files: dict[str, str]) -> Path:
    for name, text in {"proc/meminfo": f"MemTotal: 1 kB\nMemAvailable: {8 * GB // 1024} kB\n", **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def group(
    folder: str, limit: str, used: int, cached: int = 0, names: tuple[str, str] = ("memory.max", "memory.current")
):
    return {
        f"{folder}/{names[0]}": f"{limit}\n",
        f"{folder}/{names[1]}": f"{used}\n",
        f"{folder}/memory.stat": f"anon 5\ninactive_file {cached}\nactive_file 7\n",
    }


TOP = "sys/fs/cgroup"
OLD = ("memory.limit_in_bytes", "memory.usage_in_bytes")


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, 8),
        ({"proc/self/cgroup": "0::/\n", **group(TOP, "max", GB)}, 8),
        ({"proc/self/cgroup": "0::/\n", **group(TOP, str(4 * GB), GB)}, 3),
        ({"proc/self/cgroup": "0::/\n", **group(TOP, str(4 * GB), 3 * GB, cached=2 * GB)}, 3),
        ({"proc/self/cgroup": "0::/\n", **group(TOP, str(64 * GB), GB)}, 8),
        ({"proc/self/cgroup": "0::/job/step\n", **group(f"{TOP}/job", str(5 * GB), 3 * GB)}, 2),
        ({"proc/self/cgroup": "0::/elsewhere/seen/by/the/host\n", **group(TOP, str(4 * GB), GB)}, 3),
        ({"proc/self/cgroup": "0::/job\n", **group(f"{TOP}/job", str(GB), 2 * GB)}, 0),
        (
            {
                "proc/self/cgroup": "5:cpu,memory:/job\n4:pids:/\n",
                **group(f"{TOP}/memory/job", str(3 * GB), GB, 0, OLD),
            },
            2,
        ),
        ({"proc/self/cgroup": "nonsense\n"}, 8),
    ],
)
def test_it_is_the_least_that_anybody_leaves(files: dict[str, str], free: int, tmp_path: Path) -> None:
    assert free_memory(machine(tmp_path, files)) == pytest.approx(free * GB, abs=1024)


@pytest.mark.parametrize("text", ["", "MemAvailable:\n", "MemAvailable: much kB\n"])
def test_where_nobody_says_it_is_not_known(text: str, tmp_path: Path) -> None:
    assert free_memory(machine(tmp_path, {"proc/meminfo": text})) is None
    assert free_memory(tmp_path / "nowhere") is None
