"""Two processes train as one does: the same losses, the same errors to adapt to, and one word for one fault."""

import json
import textwrap

import pytest
from made_runs import FAST, read_history, recipe, train_on_two

from fairbench.training import train


def test_two_processes_give_the_same_loss_curves_as_one(tmp_path):
    """Four methods in turn, in one program: starting two processes takes longer than training in them."""
    cases = {
        "pgd_at": ({}, 0.005),
        "gairat": ({"burn_in": 0.0}, 0.005),
        # The first KL gradients are rounding, and so are their signs: fast weights make that 0.2 % in 2 epochs.
        "bat": ({}, 1e-5),
        "cfa": ({"warm_up": 0.0}, 1e-5),
    }
    short = {"name": "cosine", "epochs": 2}
    recipes = {
        name: recipe(name, options=FAST | options, optimizer={"name": "adam", "lr": lr}, schedule=short)
        for name, (options, lr) in cases.items()
    }
    train_on_two({tmp_path / f"{name}-on-two": chosen for name, chosen in recipes.items()}, tmp_path)
    for name, chosen in recipes.items():
        train(chosen, tmp_path / name)
        one, two = ([float(row["loss"]) for row in read_history(tmp_path / out)] for out in (name, f"{name}-on-two"))
        assert two == pytest.approx(one, rel=1e-5), name


FULL = textwrap.dedent("""
    from fairbench.errors import OutcomesError
    from fairbench.training import run_folder
    def full(path, state, check=None):
        raise OutcomesError("the disk is full")
    run_folder.RunFolder.save = full
""")


def test_what_one_process_cannot_write_all_processes_say(tmp_path):
    ran = train_on_two({tmp_path / "o": recipe("standard")}, tmp_path, FULL, check=False)
    assert ran.returncode
    raised = {line.partition("]: ")[2] or line for line in ran.stderr.splitlines() if "Error: " in line}
    assert raised == {"fairbench.errors.OutcomesError: the disk is full"}


NORMED = textwrap.dedent("""
    from torch import nn

    def build(num_classes, in_channels):
        layers = nn.Conv2d(in_channels, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, num_classes)
        return nn.Sequential(*layers)
""")


SHOWN = textwrap.dedent("""
    import sys
    from fairbench.training.methods.frl import FRL
    ended = FRL.end_epoch
    def end_epoch(self, validate):
        ended(self, validate)
        open(f"{sys.argv[1]}.{self.context.rank}", "a").write(repr(self.lambda0.tolist()) + chr(10))
    FRL.end_epoch = end_epoch
""")


def test_processes_with_batch_norm_adapt_to_the_same_errors(tmp_path, monkeypatch):
    (tmp_path / "normed.py").write_text(NORMED)
    monkeypatch.syspath_prepend(str(tmp_path))
    train(recipe("standard", architecture="normed:build", schedule={"epochs": 1}), tmp_path / "start")
    chosen = recipe("frl", architecture="normed:build", start=str(tmp_path / "start"), options=FAST)
    train_on_two({tmp_path / "out": chosen}, tmp_path, SHOWN)
    seen = [(tmp_path / f"out.{rank}").read_text().splitlines() for rank in (0, 1)]
    assert len(seen[0]) == 3
    assert seen[0] == seen[1]
    assert any(float(weight) for weight in json.loads(seen[0][-1]))
