"""Weights that do not ship with the package: found in a folder of one's own, or fetched and checked."""

import hashlib
import io
from http.client import IncompleteRead
from pathlib import Path
from typing import Any

import pytest

from fairbench.errors import ModelError
from fairbench.models.cards import Weights, load_card
from fairbench.models.weights import weights_path

CONTENT = b"weights"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def card() -> Any:
    weights = Weights(file="big.safetensors", url="https://zoo.example/big.safetensors", sha256=SHA256)
    return load_card("natural_resnet18").model_copy(update={"name": "big", "weights": weights})


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FAIRBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FAIRBENCH_ZOO", raising=False)
    return tmp_path / "cache" / "zoo"


def serve(monkeypatch: pytest.MonkeyPatch, content: bytes | Exception) -> list[str]:
    """Let the address answer with ``content``; returns the addresses asked for."""
    asked: list[str] = []

    class Reply(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if isinstance(content, Exception):
                raise content
            return super().read(size)

    def urlopen(request: Any, timeout: float) -> io.BytesIO:
        asked.append(request.full_url)
        return Reply(b"" if isinstance(content, Exception) else content)

    monkeypatch.setattr("fairbench.download.urlopen", urlopen)
    return asked


def test_a_folder_of_ones_own_comes_before_the_network(
    card: Any, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = serve(monkeypatch, CONTENT)
    (tmp_path / "big.safetensors").write_bytes(CONTENT)
    monkeypatch.setenv("FAIRBENCH_ZOO", str(tmp_path))
    assert weights_path(card) == tmp_path / "big.safetensors"
    assert asked == []


def test_a_clone_that_is_the_current_folder_has_them(
    card: Any, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("model_zoo") / "weights"
    folder.mkdir(parents=True)
    (folder / "big.safetensors").write_bytes(b"a pointer to them")
    asked = serve(monkeypatch, CONTENT)
    assert weights_path(card) == cache / "big.safetensors"
    (cache / "big.safetensors").unlink()
    (folder / "big.safetensors").write_bytes(CONTENT)
    assert weights_path(card) == folder / "big.safetensors"
    assert len(asked) == 1


def test_weights_are_fetched_once(card: Any, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = serve(monkeypatch, CONTENT)
    assert weights_path(card) == weights_path(card) == cache / "big.safetensors"
    assert (cache / "big.safetensors").read_bytes() == CONTENT
    assert asked == ["https://zoo.example/big.safetensors"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"something else", r"its SHA-256 begins with \w{12}, not \w{12}"),
        (CONTENT + bytes(100), "larger than 50 bytes"),
        (TimeoutError("timed out"), "timed out"),
        (IncompleteRead(b"wei", 4), "3 bytes read, 4 more expected"),
        (ConnectionResetError(104, "reset by peer"), "ConnectionResetError: .* reset by peer"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_what_is_not_the_file_of_the_card_is_refused_and_not_kept(
    card: Any, cache: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | Exception, said: str
) -> None:
    serve(monkeypatch, content)
    monkeypatch.setattr("fairbench.download.LARGEST", 50)
    with pytest.raises(
        ModelError, match=rf"could not be fetched .*{said}.*put big\.safetensors .* in \$FAIRBENCH_ZOO"
    ) as caught:
        weights_path(card)
    assert "\n" not in str(caught.value)
    assert list(cache.iterdir()) == []


def test_without_a_network_it_says_what_to_put_where(card: Any, cache: Path, no_network: None) -> None:
    with pytest.raises(ModelError, match=r"could not be fetched from https://zoo\.example.*put big\.safetensors"):
        weights_path(card)


def test_a_file_of_ones_own_that_is_another_is_refused(
    card: Any, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "big.safetensors").write_bytes(b"other")
    monkeypatch.setenv("FAIRBENCH_ZOO", str(tmp_path))
    with pytest.raises(ModelError, match="is not the file of its card"):
        weights_path(card)
