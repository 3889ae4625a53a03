"""The walk of docs/leaderboard.md on small models: submit, check, verify, add, build; and tampering."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest

from fairbench.models import load_model
from fairbench.models.export import export
from fairbench.outcomes import Outcomes
from fairbench.provenance import sha256_file

Cli = Callable[..., Any]
SAID = ("--name", "My method", "--contact", "me@example.org", "--licence", "MIT", "--protocol", "standard")


@pytest.fixture
def packed(cli: Cli, checkpoint: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "my submission"
    ran = cli("submit", checkpoint, "--arch", "mlp", "--dataset", "digits", *SAID, "--out", folder)
    assert ran.code == 0, ran.err
    measured, said = ran.out.splitlines()
    assert said == f"{folder} is packed: fairbench leaderboard check '{folder}'"
    assert re.fullmatch(r"pgd20: robust error [\d.]+ \[.*\] on average, [\d.]+ \[.*\] of \d, the worst class", measured)
    return folder


def tamper(folder: Path, count: int) -> None:
    """Say of some rows that broke that they withstood; hash and all are put right."""
    outcomes = Outcomes.read(folder)
    frame = outcomes.frame
    broken = np.flatnonzero((frame["pgd20_pred"] != frame["label"]) & (frame["clean_pred"] == frame["label"]))
    frame.loc[broken[:count], "pgd20_pred"] = frame.loc[broken[:count], "label"].astype("Int16")
    Outcomes(frame, outcomes.manifest).write(folder)


def test_the_walk(cli: Cli, packed: Path, tmp_path: Path) -> None:
    assert sorted(p.name for p in packed.iterdir()) == [
        "card.yaml",
        "manifest.json",
        "outcomes.parquet",
        "weights.safetensors",
    ]
    board = tmp_path / "board"
    (board / "results").mkdir(parents=True)
    checked = cli("leaderboard", "check", packed, "--board", board)
    assert checked.code == 0
    assert "no problem found in what was checked" in checked.out
    verified = cli("leaderboard", "verify", packed, "--examples", 100, "--seed", 1)
    assert verified.code == 0, verified.out + verified.err
    assert "seed 1: 100 rows attacked again, 360 classified again" in verified.out
    assert verified.out.endswith(f"{packed}: consistent\n")
    added = cli("leaderboard", "add", packed, "--board", board)
    assert (added.code, "one was made" in added.out) == (0, False)
    elsewhere = cli("leaderboard", "add", packed, "--board", tmp_path / "new")
    assert f"note: there was no board at {tmp_path / 'new'}, and one was made" in elsewhere.out
    assert cli("leaderboard", "build", "--board", board).code == 0
    assert "My method (my_method.1)" in (board / "tables" / "digits_linf_8-255.md").read_text()
    again = cli("leaderboard", "check", packed, "--board", board)
    assert again.code == 1
    assert "problem: card.yaml: the name my_method is taken" in again.out
    assert cli("leaderboard", "check", board / "submissions" / "my_method" / "1", "--board", board).code == 0


def test_rows_turned_robust_pass_the_check_and_not_verify(cli: Cli, packed: Path) -> None:
    tamper(packed, 10)
    checked = cli("leaderboard", "check", packed, "--board", packed / "no")
    assert checked.code == 0
    assert f"not checked: name: no board at {packed / 'no'}" in checked.out
    ran = cli("leaderboard", "verify", packed, "--examples", 200, "--seed", 1, "--json")
    found = json.loads(ran.out)
    assert ran.code == 1
    assert found["verdict"] == "rejected"
    assert found["attacks"][0]["always_broken"]


def test_other_weights_are_rejected(cli: Cli, packed: Path, other_checkpoint: Path) -> None:
    from fairbench.models.checkpoints import read_state, safetensors_bytes

    before = sha256_file(packed / "weights.safetensors")
    (packed / "weights.safetensors").write_bytes(safetensors_bytes(read_state(other_checkpoint)))
    assert "its SHA-256 is not the one in card.yaml" in cli("leaderboard", "check", packed).out
    card = (packed / "card.yaml").read_text()
    (packed / "card.yaml").write_text(card.replace(before, sha256_file(packed / "weights.safetensors")))
    ran = cli("leaderboard", "verify", packed)
    assert (ran.code, ran.err) == (1, "")
    assert "is rejected: its weights are not the ones that my_method was evaluated with" in ran.out
    ran = cli("leaderboard", "verify", packed, "--json")
    assert (ran.code, json.loads(ran.out)["verdict"]) == (1, "rejected")


def test_a_correction_can_be_verified_and_a_seed_that_is_none_is_refused(cli: Cli, packed: Path) -> None:
    text = (packed / "card.yaml").read_text()
    (packed / "card.yaml").write_text(f"{text}replaces: my_method.1\n")
    assert cli("leaderboard", "verify", packed, "--examples", 20, "--seed", 1).code == 0
    wrong = (("--seed", -1), ("--examples", 0), ("--attacks", "pgd7"), ("--arch", "lenet5"))
    for options in (*wrong, ("--batch-size", 0), ("--batch-size", -1), ("--device", "abacus")):
        assert cli("leaderboard", "verify", packed, *options).code == 2


def test_a_board_that_is_not_there_is_not_taken_for_the_packages_own(cli: Cli, tmp_path: Path) -> None:
    ran = cli("leaderboard", "show", "--board", tmp_path / "typo")
    assert (ran.code, ran.out) == (2, "")
    assert "no board at" in ran.err
    assert cli("leaderboard", "add", tmp_path / "nothing", "--board", tmp_path / "typo").code == 2
    assert not (tmp_path / "typo").exists()


def test_a_strict_check_refuses_labels_that_are_not_here(
    cli: Cli, packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a maintainer's CI runs it: without the data a check has not been made."""
    from fairbench.cli import rules

    plain = ("leaderboard", "check", packed, "--board", tmp_path)
    assert cli(*plain, "--strict").code == 0
    whole = rules._truth("digits", None)
    part = replace(whole, index=whole.index[:5], labels=whole.labels[:5], missing="not here")
    monkeypatch.setattr(rules, "_truth", lambda name, data_dir: part)
    assert cli(*plain).code == 0
    strict = cli(*plain, "--strict")
    assert strict.code == 1
    assert "problem: not all labels could be compared: give --data-dir" in strict.out


def test_a_submission_needs_no_licence_and_says_so(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    said = ("--name", "Mine", "--contact", "me@example.org", "--protocol", "standard")
    ran = cli("submit", checkpoint, "--arch", "mlp", "--dataset", "digits", *said, "--out", tmp_path / "s")
    assert ran.code == 0, ran.err
    assert "licence: not stated" in (tmp_path / "s" / "card.yaml").read_text()


def test_check_as_json_and_a_folder_that_is_none(cli: Cli, packed: Path, tmp_path: Path) -> None:
    (packed / "notes.txt").write_text("")
    ran = cli("leaderboard", "check", packed, "--json")
    assert ran.code == 1
    found = json.loads(ran.out)
    assert not found["accepted"]
    assert found["problems"][0].startswith("notes.txt: not a file of a submission")
    assert found["not_checked"][0].startswith("weights: ")
    assert cli("leaderboard", "check", tmp_path / "nowhere").code == 2


def test_weights_at_an_address(cli: Cli, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, url = tmp_path / "s", "https://example.org/one.pt?download=1"
    said = (*SAID, "--weights-url", url, "--out", folder)
    assert cli("submit", checkpoint, "--arch", "mlp", "--dataset", "digits", *said).code == 0
    assert not (folder / "weights.safetensors").exists()
    ran = cli("leaderboard", "check", folder)
    assert ran.code == 0
    assert f"not checked: weights: {url} was not fetched" in ran.out
    monkeypatch.setattr("fairbench.download.urlopen", lambda _request, timeout: checkpoint.open("rb"))
    assert cli("leaderboard", "verify", folder, "--examples", 50, "--seed", 1).code == 0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (("--name", "///"), "give a name with --key"),
        (("--name", "我的方法"), "give a name with --key"),
        (("--key", "../x"), "name: '../x' is not small letters, digits"),
        (("--paper", "javascript:alert(1)"), "paper: 'javascript:alert(1)' is not an address that begins"),
        (("--protocol", "quick"), "'quick' is not one of 'leaderboard', 'standard'"),
        (("--threat-epsilon", "much"), "--threat-epsilon 'much': give a number"),
        (
            ("--weights-url", "http://a.org/w.pt"),
            "'http://a.org/w.pt' is not an address that begins with https",
        ),
        (("--replaces", "mine"), "replaces: 'mine' is not the name of an entry"),
        (("--dataset", "mine.npz"), "--dataset mine.npz: boards are of the datasets that `fairbench datasets` lists"),
        (("--dataset", "cifar-10"), "Did you mean 'cifar10'?"),
    ],
)
def test_a_card_that_would_be_refused_is_refused_before_the_evaluation(
    cli: Cli, checkpoint: Path, tmp_path: Path, cache: Path, changed: tuple[str, str], message: str
) -> None:
    ran = cli("submit", checkpoint, "--arch", "mlp", "--dataset", "digits", *SAID, "--out", tmp_path / "s", *changed)
    assert ran.code == 2
    assert message in ran.err
    assert not (tmp_path / "s").exists()
    assert not list(cache.rglob("*.parquet"))


def test_another_runs_folder_is_not_overwritten(cli: Cli, packed: Path, other_checkpoint: Path) -> None:
    before = {p.name: p.read_bytes() for p in packed.iterdir()}
    ran = cli("submit", other_checkpoint, "--arch", "mlp", "--dataset", "digits", *SAID, "--out", packed)
    assert ran.code == 2
    assert "holds another run" in ran.err
    assert {p.name: p.read_bytes() for p in packed.iterdir()} == before


def test_a_model_is_the_same_again_from_what_is_packed(checkpoint: Path, tmp_path: Path) -> None:
    from fairbench.models.checkpoints import safetensors_bytes

    model = load_model(checkpoint, arch="mlp", num_classes=10, shape=(1, 8, 8), mean=(0.1307,), std=(0.3081,))
    found = export(model)
    path = tmp_path / "weights.safetensors"
    path.write_bytes(safetensors_bytes(found.state))
    assert found.normalization is not None
    mean, std = found.normalization
    again = load_model(path, arch=found.architecture, num_classes=10, shape=(1, 8, 8), mean=mean, std=std)
    assert again.sha256 == model.sha256


def test_an_own_architecture_is_run_only_when_it_is_named(cli: Cli, nets: Path, tmp_path: Path) -> None:
    folder = tmp_path / "s"
    assert cli("submit", nets, "--arch", "cli_nets:Net", "--dataset", "digits", *SAID, "--out", folder).code == 0
    ran = cli("leaderboard", "verify", folder)
    assert ran.code == 2
    assert "a card runs no code; look at that code, then say --arch cli_nets:Net" in ran.err
    ran = cli("leaderboard", "verify", folder, "--arch", "cli_nets:Net", "--examples", 20, "--seed", 1)
    assert ran.code == 0, ran.err


def test_what_submit_says_next_has_the_data_folder_in_it(cli: Cli, checkpoint: Path, tmp_path: Path) -> None:
    data = tmp_path / "my data"
    data.mkdir()
    folder = tmp_path / "s"
    ran = cli("submit", checkpoint, "--arch", "mlp", "--dataset", "digits", *SAID, "--data-dir", data, "--out", folder)
    assert ran.out.endswith(f"\n{folder} is packed: fairbench leaderboard check {folder} --data-dir '{data}'\n")


def test_weights_of_the_zoo_under_another_name_are_known() -> None:
    from fairbench.cli.rules import rules
    from fairbench.leaderboard.results import read_result
    from fairbench.models.cards import load_card

    known = rules(None, None).known_weights
    name = "bat_lenet5_fashion_mnist"
    assert known[load_card(name).weights.sha256] == name
    assert known[read_result(f"{name}.standard").manifest["model"]["sha256"]] == name


SERVE = """
import signal, sys
from fairbench.cli import run
signal.signal(signal.SIGINT, signal.default_int_handler)  # who started the tests in the background ignores it
sys.exit(run(sys.argv[1:]))
"""


def test_serve_builds_shows_the_pages_to_this_machine_and_refuses_a_port_in_use(tmp_path: Path) -> None:
    (tmp_path / "board" / "results").mkdir(parents=True)
    command = [sys.executable, "-c", SERVE, "leaderboard", "serve", "--board", str(tmp_path / "board"), "--port"]
    serving = subprocess.Popen([*command, "0"], stdout=subprocess.PIPE, text=True)
    try:
        assert serving.stdout is not None
        assert "no pages in" in serving.stdout.readline()
        address = re.findall(r"http://localhost:(\d+)/", serving.stdout.readline())
        port = address[0]
        with urlopen(f"http://127.0.0.1:{port}/") as answer:
            assert b"fairbench leaderboard" in answer.read()
        again = subprocess.run([*command, port], capture_output=True, text=True, check=False)
        assert (again.returncode, again.stdout) == (2, "")
        assert again.stderr == f"fairbench: port {port} is in use; choose another with --port, or 0 for any.\n"
        serving.send_signal(signal.SIGINT)
        assert serving.wait(timeout=60) == 0
    finally:
        serving.kill()
        serving.wait()
        assert serving.stdout is not None
        serving.stdout.close()


def test_another_entry_is_not_packed_over_one_that_is_there(cli: Cli, packed: Path, checkpoint: Path) -> None:
    before = (packed / "card.yaml").read_bytes()
    asked = ("submit", checkpoint, "--arch", "mlp", "--dataset", "digits", *SAID, "--out", packed)
    ran = cli(*asked, "--key", "other")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "holds the submission of my_method; nothing was overwritten" in ran.err
    assert (packed / "card.yaml").read_bytes() == before
    assert cli(*asked).code == 0
