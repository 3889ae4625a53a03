"""What every test may lean on: the real documents and data where they are, a cache of its own, and the command line."""

import os

# Tiny networks run slower on many threads than on one, and far slower where other work shares the cores. Before torch.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import settings

from fairbench.cli import run
from fairbench.datasets.named import find_named

ROOT = Path(__file__).parents[1]
os.environ.setdefault("FAIRBENCH_ZOO", str(ROOT / "model_zoo" / "weights"))  # a wheel carries only some weights


settings.register_profile("fixed", derandomize=True, database=None, deadline=None)  # the same examples in every run
settings.load_profile("fixed")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes are named by their argument: a compressed file holds the second it was made, and processes must agree."""
    return argname if isinstance(val, bytes) else None


class Ran(NamedTuple):
    """What a run of the command line left: its exit code and what it printed."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real checkpoints and documents: ``$FAIRBENCH_SHARED``, or ``shared`` beside the repository."""
    folder = Path(os.environ.get("FAIRBENCH_SHARED") or ROOT.parent / "shared")
    if not (folder / "checkpoints").is_dir():
        pytest.skip(f"no real checkpoints: {folder / 'checkpoints'} is not there; set $FAIRBENCH_SHARED to have them")
    return folder


@pytest.fixture
def data_dir() -> Callable[[str], Path]:
    """``data_dir("cifar10")`` is the folder of full datasets, ``$FAIRBENCH_DATA``, if that one is in it."""
    folder = os.environ.get("FAIRBENCH_DATA")

    def holding(name: str) -> Path:
        if not folder:
            pytest.skip(f"no full {name}: $FAIRBENCH_DATA is not set")
        if find_named(name, [Path(folder)]) is None:
            pytest.skip(f"no full {name} in $FAIRBENCH_DATA ({folder})")
        return Path(folder)

    return holding


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, so that no test reads or fills the user's."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("FAIRBENCH_CACHE", str(folder))
    return folder


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """``cli("evaluate", "--model", path)`` runs the command line in this process."""

    def call(*arguments: object) -> Ran:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return call


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without network: no name resolves and nothing connects."""
    import socket

    def refuse(*_arguments: object, **_options: object) -> None:
        raise OSError("Network is unreachable")

    for name in ("getaddrinfo", "create_connection"):
        monkeypatch.setattr(socket, name, refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture
def small_adult(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with 300 training and 240 test rows in the form of UCI's two files, the first with words missing.

    Income above 50K goes with age; a third of the rows are women, and race "Other" has 12 rows in the test file.
    """
    from fairbench.datasets import tabular
    from fairbench.provenance import sha256_file

    folder = tmp_path / "data" / "adult"
    folder.mkdir(parents=True)
    for split, rows in (("train", 300), ("test", 240)):
        lines = ["|1x3 Cross validator"] if split == "test" else []
        for n in range(rows):
            age, sex = 20 + (n * 7) % 50, "Female" if n % 3 == 0 else "Male"
            race = "Other" if n % 20 == 0 else "White" if n % 2 else "Black"
            work = "?" if n == 0 and split == "train" else "Private" if n % 5 else "State-gov"
            income = (">50K" if age > 50 else "<=50K") + ("." if split == "test" else "")
            lines.append(
                f"{age}, {work}, {100_000 + 1_000 * n}, HS-grad, {9 + n % 4}, Divorced, Sales, Husband, {race}, {sex}, "
                f"{(n % 2) * 500}, {n % 3}, {30 + n % 20}, Peru, {income}"
            )
        (folder / tabular.FILES[split][0]).write_text("\n".join(lines) + "\n\n")
    hashes = {split: (name, sha256_file(folder / name)) for split, (name, _) in tabular.FILES.items()}
    monkeypatch.setattr(tabular, "FILES", hashes)
    return folder.parent
