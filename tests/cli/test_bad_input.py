"""Bad input: one clear line on stderr, exit code 2, nothing on stdout, nothing half-written."""

import json
import os
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from fairbench.models.architectures.lenet5 import LeNet5
from fairbench.models.architectures.small_cnn import SmallCNN

Cli = Callable[..., Any]


def assert_refused(ran: Any, message: str) -> None:
    assert ran.code == 2, ran.err
    assert ran.out == ""
    assert ran.err.count("\n") == 1, ran.err
    assert ran.err.startswith("fairbench: ")
    assert message in ran.err


def assert_nothing_kept(out: Path, cache: Path) -> None:
    assert not out.exists() or not list(out.iterdir())
    assert not list(cache.rglob("outcomes.parquet"))


class Touch:
    """Makes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (f"touch '{self.marker}'",)


def small_cnn(classes: int = 10) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return SmallCNN(num_classes=classes, in_channels=1).state_dict()


def with_nan() -> dict[str, torch.Tensor]:
    state = small_cnn()
    state["classifier.2.bias"][3] = float("nan")
    return state


def write_bytes(content: bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(content)  # type: ignore[return-value]


def write(held: Callable[[Path], Any]) -> Callable[[Path], None]:
    return lambda path: torch.save(held(path), path)


def write_truncated(path: Path) -> None:
    torch.save(small_cnn(), path)
    path.write_bytes(path.read_bytes()[:5000])


def write_zip(*names: str) -> Callable[[Path], None]:
    def build(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            for name in names:
                archive.writestr(name, "content")

    return build


CHECKPOINTS: dict[str, tuple[Callable[[Path], Any], list[str], str]] = {
    "missing": (lambda path: None, [], "does not exist"),
    "empty": (write_bytes(b""), [], "is empty (0 bytes); fetch it again"),
    "web page": (write_bytes(b"<!DOCTYPE html><html>Virus scan warning</html>"), [], "is a web page, not weights"),
    "truncated": (write_truncated, [], "is cut short or damaged; fetch it again"),
    "arrays": (write_zip("x.npy", "y.npy"), [], "holds arrays, not weights: it is data and goes to --dataset"),
    "document": (write_zip("[Content_Types].xml"), [], "is a zip file with [Content_Types].xml, no checkpoint"),
    "zipped": (write_zip("best.pth"), [], "no checkpoint; unpack it, and name best.pth"),
    "no checkpoint": (write_bytes(b"lr: 0.1\nepochs: 90\n"), [], "is not a PyTorch checkpoint"),
    "folder": (Path.mkdir, [], "is a folder, not a file"),
    "code": (write(lambda path: {"w": Touch(path.with_name("ran"))}), [], "which is code or a whole pickled model"),
    "whole module": (write(lambda _: nn.Sequential(nn.Linear(2, 2))), [], "Save model.state_dict()"),
    "no weights": (write(lambda _: {"epoch": 3}), [], "holds a dict with epoch, but no state_dict"),
    "for no architecture": (write(lambda _: nn.Linear(2, 2).state_dict()), [], "say which with --arch"),
    "for another": (write(lambda _: small_cnn()), ["--arch", "lenet5"], "does not fit lenet5: missing: feature"),
    "wrong class count": (write(lambda _: small_cnn(7)), [], "has 7 outputs, but the dataset has 10 classes"),
    "NaN weights": (write(lambda _: with_nan()), [], "'classifier.2.bias' holds NaN or infinite weights"),
    "colour for grey": (write(lambda _: SmallCNN().state_dict()), [], "cannot take images of 1x8x8"),
    "architecture typo": (write(lambda _: small_cnn()), ["--arch", "smal_cnn"], "Did you mean 'small_cnn'"),
    "no such function": (write(lambda _: small_cnn()), ["--arch", "os:nothing"], "'os' has no function or class"),
}  # fmt: skip


@pytest.mark.parametrize("kind", CHECKPOINTS)
def test_a_bad_checkpoint(kind: str, cli: Cli, tmp_path: Path, cache: Path) -> None:
    prepare, options, message = CHECKPOINTS[kind]
    path = tmp_path / "net.pt"
    prepare(path)
    ran = cli("evaluate", "--model", path, "--dataset", "digits", "--steps", 2, "--out", tmp_path / "out", *options)
    assert_refused(ran, message)
    assert not (tmp_path / "ran").exists()
    assert_nothing_kept(tmp_path / "out", cache)


def test_weights_for_another_architecture_name_five_keys_of_a_kind_and_what_they_fit(cli: Cli, tmp_path: Path) -> None:
    torch.save(LeNet5().state_dict(), tmp_path / "net.pt")
    ran = cli("evaluate", "--model", tmp_path / "net.pt", "--arch", "resnet18", "--dataset", "digits")
    assert_refused(ran, "It fits lenet5: pass --arch lenet5.")
    missing = ran.err.split("missing: ")[1].split("; unexpected: ")[0]
    assert missing.startswith("conv1.weight, bn1.weight, ")
    assert missing.count(",") == 4
    assert missing.endswith(" more")


MODULES = {
    "NaN": "logits are NaN or infinite on example 0",
    "Infinite": "logits are NaN or infinite on example 0",
    "Vector": "to (64,); logits are (64, 10)",
    "Map": "to (64, 10, 1, 1); logits are (64, 10)",
    "Short": "to (63, 10); logits are (64, 10)",
    "Wide": "the model has 20 outputs, but the dataset has 10 classes",
    "Pair": "the model returns a tuple of 2 ((64, 10), (64, 1, 8, 8)); pick the logits with --output (such as 0)",
    "Named": "the model returns a dict with logits, input; pick the logits with --output",
    "Text": "the model returns a str",
    "Asserts": "cannot take images of 1x8x8",
    "Misses": "fails on images of 1x8x8 (channels x height x width): KeyError: 'feature'.",
    "Leaves": "fails on images of 1x8x8 (channels x height x width): SystemExit: 3.",
    "Divides": "fails on images of 1x8x8 (channels x height x width): ZeroDivisionError: division by zero.",
}


@pytest.mark.parametrize("name", MODULES)
def test_a_model_that_does_not_answer_as_a_classifier(
    name: str, nets: Path, cli: Cli, tmp_path: Path, cache: Path
) -> None:
    ran = cli(
        "evaluate", "--model", nets, "--arch", f"cli_nets:{name}", "--dataset", "digits", "--steps", 2,
        "--batch-size", 64, "--out", tmp_path / "out",
    )  # fmt: skip
    assert_refused(ran, MODULES[name])
    assert_nothing_kept(tmp_path / "out", cache)


def test_nan_logits_in_a_later_shard_name_the_example(nets: Path, cli: Cli, tmp_path: Path, cache: Path) -> None:
    images = np.zeros((150, 8, 8), np.uint8)
    images[137] = 255
    np.savez(tmp_path / "own.npz", x=images, y=np.arange(150) % 10)
    ran = cli(
        "evaluate", "--model", nets, "--arch", "cli_nets:NaNOnWhite", "--dataset", tmp_path / "own.npz", "--steps", 1,
        "--batch-size", 50, "--out", tmp_path / "out",
    )  # fmt: skip
    assert_refused(ran, "logits are NaN or infinite on example 137")
    assert_nothing_kept(tmp_path / "out", cache)


@pytest.mark.parametrize(
    ("name", "output", "message"),
    [
        ("Pair", "2", "--output 2: the model returns a tuple of 2"),
        ("Named", "logit", "--output logit: the model returns a dict with logits, input"),
        ("Net", "0", "leave --output away"),
    ],
)
def test_an_output_that_is_not_there(name: str, output: str, message: str, nets: Path, cli: Cli) -> None:
    ran = cli("evaluate", "--model", nets, "--arch", f"cli_nets:{name}", "--dataset", "digits", "--output", output)
    assert_refused(ran, message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--epsilon", "-1/255"], "must be greater than 0"),
        (["--epsilon", "0"], "must be greater than 0"),
        (["--epsilon", "nan"], "epsilon"),
        (["--epsilon", "8"], "on the 0..255 scale you mean 8/255"),
        (["--epsilon", "1.5"], "must be at most 1"),
        (["--epsilon", "eight"], "give a number such as 8/255"),
        (["--epsilon", "8/0"], "give a number such as 8/255"),
        (["--epsilon", "1e400"], "epsilon"),
        (["--step", "2"], "on the 0..255 scale you mean 2/255"),
        (["--step", "0"], "must be greater than 0"),
        (["--steps", "0"], "PGD takes 1 to 10,000 steps"),
        (["--steps", "many"], "--steps"),
        (["--restarts", "0"], "restarts 0: it must be 1 to"),
        (["--seed", "-1"], "seed -1: it must be 0 to"),
        (["--score", "best"], "--score"),
        (["--attacks", "pdg20"], "unknown attack 'pdg20'. Did you mean 'pgd20'"),
        (["--attacks", "pgd0"], "PGD takes 1 to 10,000 steps"),
        (["--attacks", "pgd20,pgd20"], "one stands twice"),
        (["--attacks", ","], "--attacks ',': give names with one comma between"),
        (["--attacks", ""], "empty text after --attacks"),
        (["--protect", "sex,,race"], "give names with one comma between"),
        (["--out="], "--out is empty"),
        (["--out", " "], "empty text after --out"),
        (["--json", "--markdown"], "choose one"),
        (["--protocol", "quik"], "unknown protocol 'quik'. Did you mean 'quick'"),
        (["--engine", "locl"], "unknown engine 'locl'. Did you mean 'local'"),
        (["--batch-size", "0"], "batch size 0: it must be 1 or more"),
        (["--batch-size", "-5"], "batch size -5: it must be 1 or more"),
        (["--device", "cuda:99"], "device 'cuda:99' cannot be used"),
        (["--device", "gpu"], "device 'gpu' cannot be used"),
        (["--format", "xml"], "--format"),
        (["--resize", "big"], "--resize big: give one size such as 32"),
        (["--resize", "0"], "--resize 0: give one size"),
        (["--resize", "8x8x3"], "--resize 8x8x3: give one size"),
        (["--mean", "0.5"], "--mean and --std go together"),
        (["--std", "0.5"], "--mean and --std go together"),
        (["--mean", "0.5", "--std", "0"], "every value must be greater than 0"),
        (["--mean", "0.5,0.5", "--std", "1"], "--mean has 2 values and --std has 1"),
        (["--mean", "half", "--std", "1"], "--mean half: give numbers with commas between"),
        (["--data-dir", "nowhere", "--dataset", "cifar100"], "data directory nowhere is not a folder"),
        (["--colour"], "--colour"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_bad_option(
    options: list[str], message: str, checkpoint: Path, cli: Cli, tmp_path: Path, cache: Path
) -> None:
    ran = cli("evaluate", "--model", checkpoint, "--dataset", "digits", "--out", tmp_path / "out", *options)
    assert_refused(ran, message)
    assert_nothing_kept(tmp_path / "out", cache)


def own_npz(**arrays: Any) -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        np.savez(folder / "own.npz", **arrays)
        return folder / "own.npz"

    return build


def image_folder(*classes: str, broken: bool = False) -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        for name in classes:
            (folder / "images" / name).mkdir(parents=True)
            Image.new("L", (8, 8)).save(folder / "images" / name / "1.png")
        if broken:
            (folder / "images" / classes[0] / "holiday.png").write_bytes(b"\x89PNG\r\n")
        return folder / "images"

    return build


X = np.zeros((6, 8, 8), np.uint8)
Y = np.arange(6)
TEN = np.array(list("abcdefghij"))
DATASETS: dict[str, tuple[Callable[[Path], object], str]] = {
    "typo": (lambda folder: "fashion_mnits", "unknown dataset 'fashion_mnits'. Did you mean 'fashion_mnist'"),
    "missing": (lambda folder: folder / "own.npz", "no file or folder"),
    "no npz": (lambda folder: (folder / "a.csv").write_text("1") and folder / "a.csv", "a dataset is a .npz file"),
    "damaged": (lambda folder: (folder / "own.npz").write_text("<html>") and folder / "own.npz", "not a readable .npz"),
    "label too large": (own_npz(x=X, y=Y + 5, classes=TEN), "label 10 is outside 0..9 (10 classes)"),
    "labels from 1": (own_npz(x=X, y=Y + 5, classes=TEN), "no example of class 0; if they are numbered from 1, subtr"),
    "label negative": (own_npz(x=X, y=Y - 1, classes=TEN), "label -1 is negative; labels are 0..K-1"),
    "label fractional": (own_npz(x=X, y=Y / 2, classes=TEN), "not one whole number an image"),
    "one class": (own_npz(x=X, y=Y * 0), "only 1 class; a classifier needs at least two"),
    "normalised": (own_npz(x=(X - 1.0).astype(np.float32), y=Y, classes=TEN), "they look normalised already"),
    "255 floats": (own_npz(x=(X + 200.0).astype(np.float32), y=Y, classes=TEN), "they look like 0..255"),
    "pickled": (own_npz(x=X, y=np.array([None] * 6)), "not a readable .npz of plain arrays"),
    "no images key": (own_npz(a=X, y=Y), "needs x_test and y_test or x and y"),
    "one class folder": (image_folder("cat"), "one folder per class, two at least"),
    "unreadable image": (image_folder("cat", "dog", broken=True), "holiday.png cannot be read"),
}


@pytest.mark.parametrize("kind", DATASETS)
def test_a_bad_dataset(kind: str, checkpoint: Path, cli: Cli, tmp_path: Path, cache: Path) -> None:
    build, message = DATASETS[kind]
    ran = cli("evaluate", "--model", checkpoint, "--dataset", build(tmp_path), "--out", tmp_path / "out")
    assert_refused(ran, message)
    assert_nothing_kept(tmp_path / "out", cache)


@pytest.mark.parametrize("name", ["cifar10", "cifar100", "svhn", "fashion_mnist", "imagenette"])
def test_no_network_says_which_file_to_put_where(
    name: str, checkpoint: Path, cli: Cli, no_network: None, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FAIRBENCH_DATA", raising=False)
    ran = cli("evaluate", "--model", checkpoint, "--dataset", name, "--protocol", "standard")
    assert_refused(ran, f"{name} was not found in ")
    assert f"in {cache / 'data' / name}." in ran.err


@pytest.mark.parametrize("typed", ["natural_resnet17", "naturl_resnet18"])
@pytest.mark.parametrize("command", [["evaluate", "--model"], ["models", "show"]])
def test_a_misspelt_model(command: list[str], typed: str, cli: Cli) -> None:
    assert_refused(cli(*command, typed), f"unknown model '{typed}'")
    assert "Did you mean 'natural_resnet18'?" in cli(*command, typed).err


def test_data_in_the_place_of_a_model(cli: Cli, tmp_path: Path) -> None:
    assert_refused(cli("evaluate", "--model", own_npz(x=X, y=Y)(tmp_path)), "it is data and goes to --dataset")


def test_a_checkpoint_without_a_dataset(checkpoint: Path, cli: Cli) -> None:
    assert_refused(cli("evaluate", "--model", checkpoint), "pass --dataset")


@pytest.mark.parametrize("place", ["a file", "under a file"])
def test_an_out_that_cannot_be_written_is_refused_before_anything_is_computed(
    place: str, checkpoint: Path, cli: Cli, tmp_path: Path, cache: Path
) -> None:
    (tmp_path / "taken").write_text("mine")
    out = tmp_path / "taken" if place == "a file" else tmp_path / "taken" / "out"
    ran = cli("evaluate", "--model", checkpoint, "--dataset", "digits", "--out", out)
    assert_refused(ran, f"cannot write {out}")
    assert (tmp_path / "taken").read_text() == "mine"
    assert not list(cache.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["evaluate"], "--model"), (["evalute"], "evalute"), (["models", "list"], "list"), (["doctor", "x"], "x")],
)
def test_a_command_line_that_makes_no_sense(arguments: list[str], message: str, cli: Cli) -> None:
    assert_refused(cli(*arguments), message)


@pytest.mark.parametrize("place", [0, 1])
def test_debug_shows_where_it_came_from(place: int, cli: Cli) -> None:
    arguments = ["evaluate", "--model", "nowhere.pt", "--dataset", "digits"]
    arguments.insert(place, "--debug")
    ran = cli(*arguments)
    assert ran.code == 2
    assert ran.out == ""
    assert "Traceback (most recent call last)" in ran.err
    assert ran.err.splitlines()[-1] == "fairbench: checkpoint nowhere.pt does not exist."


def test_a_fault_of_ours_is_told_apart(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from fairbench.models import cards

    def fail(_name: str) -> None:
        raise ZeroDivisionError("division\nby zero")

    monkeypatch.setattr(cards, "load_card", fail)
    ran = cli("models", "show", "natural_resnet18")
    assert ran.code == 1
    assert ran.err == (
        "fairbench: internal error, ZeroDivisionError: division by zero. Run again with --debug and report it.\n"
    )


def test_stopping_by_keyboard_is_no_error_of_ours(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from fairbench.models import cards

    def stop(_name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cards, "load_card", stop)
    ran = cli("models", "show", "natural_resnet18")
    assert ran.code == 130
    assert ran.err == "fairbench: stopped.\n"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ([], "stopped; the same command goes on where it was."),
        (["--fresh"], "stopped; what was computed is kept, and the command without --fresh goes on from there."),
    ],
)
def test_what_goes_on_after_a_stop_is_said(
    more: list[str], said: str, checkpoint: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fairbench.evaluation.run import Run

    command = ["evaluate", "--model", checkpoint, "--dataset", "digits", "--steps", 1, "--batch-size", 180, "--json"]
    compute, computed = Run.compute, []

    def stopped_at_the_second(self: Run, number: int, tick: object) -> object:
        if number:
            raise KeyboardInterrupt
        computed.append(number)
        return compute(self, number, tick)

    with monkeypatch.context() as patched:
        patched.setattr(Run, "compute", stopped_at_the_second)
        ran = cli(*command, *more)
    assert (ran.code, ran.err.splitlines()[-1]) == (130, f"fairbench: {said}")
    numbers = []

    def counted(self: Run, number: int, tick: object) -> object:
        numbers.append(number)
        return compute(self, number, tick)

    monkeypatch.setattr(Run, "compute", counted)
    assert cli(*command).code == 0
    assert (computed, numbers) == ([0], [1])


@pytest.mark.parametrize(("closed", "code"), [(">&-", 0), ("2>&-", 0)])
def test_a_closed_stream_is_no_internal_error(closed: str, code: int, checkpoint: Path) -> None:
    program = "import sys; from fairbench.cli import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", program, "evaluate", "--model", checkpoint, "--dataset", "digits", "--steps", "1"]
    shell = f"{shlex.join(map(str, command))} --json {closed}"
    for _ in range(2):  # the second time a note says that it was computed before
        ran = subprocess.run(["/bin/sh", "-c", shell], capture_output=True, text=True, check=False)
        assert (ran.returncode, "internal error" in ran.stderr) == (code, False)
    if closed == "2>&-":
        assert json.loads(ran.stdout)["n"] == 360


@pytest.mark.parametrize("model", ["bat_lenet5_fashion_mnist", "standard_mlp_adult", "robustbench:Standard"])
def test_a_model_that_brings_its_normalisation_takes_no_other_and_no_data_are_looked_for(
    model: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairbench.datasets.load_dataset", lambda *_args, **_options: pytest.fail("data were loaded"))
    ran = cli("evaluate", "--model", model, "--mean", "0.5", "--std", "0.5")
    assert_refused(ran, f"{model} brings its own normalisation")


@pytest.mark.parametrize("options", [[], ["--mean", "0.5", "--std", "0.5"]])
def test_an_unknown_model_is_unknown_whatever_else_is_asked(options: list[str], cli: Cli) -> None:
    assert_refused(cli("evaluate", "--model", "no_such_model", *options), "unknown model 'no_such_model'")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["table", "--format", "latex"], "name it"),
        (["table", "--dataset", "cifar10"], "name it"),
        (["figure", "--dataset", "cifar10"], "name it"),
        (["figure", "--out", "a.png"], "name it"),
        (
            ["models", "results", "--dataset", "adult", "--figure", "a.png", "--model", "x"],
            "--dataset is for the table",
        ),
        (["models", "results", "--figure", "a.svg", "--model", "bat_lenet5_fashion_mnist"], "ends in .png"),
        (["evaluate", "--model", "x", "--json", "--format", "csv"], "--json and --format csv: give one"),
    ],
)
def test_options_that_would_have_no_effect_are_refused(cli, tmp_path, monkeypatch, command, message):
    monkeypatch.chdir(tmp_path)
    ran = cli(*command)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert list(tmp_path.iterdir()) == []


HOME_COMMANDS = [
    ["evaluate", "--model", "nosuch", "--out", "~/new"],
    ["curve", "--model", "nosuch", "--out", "~/new"],
    ["tendency", "--model", "nosuch", "--out", "~/new"],
    ["eou", "--model", "nosuch", "--attribute", "sex", "--out", "~/new"],
    ["submit", "--model", "nosuch", "--name", "Mine", "--contact", "me", "--out", "~/new"],
]


@pytest.mark.parametrize("command", HOME_COMMANDS, ids=lambda command: command[0])
def test_a_folder_at_home_is_meant_and_one_made_for_nothing_goes(cli, tmp_path, monkeypatch, command):
    home, here = tmp_path / "home", tmp_path / "here"
    home.mkdir()
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(home))
    assert cli(*command).code == 2
    assert (list(home.iterdir()), list(here.iterdir())) == ([], [])
