"""Held-out images are unseen ones: by the run, by the model it starts from, and by what came before that."""

import pytest
import yaml
from made_runs import FAST, recipe

from fairbench.errors import RecipeError
from fairbench.training import train


@pytest.mark.parametrize(
    ("method", "changes"), [("frl", {}), ("pgd_at", {"select": "worst_rob"})], ids=["adapts", "chooses"]
)
def test_held_out_images_that_the_start_was_trained_on_are_refused(method, changes, start, tmp_path):
    kept = recipe("standard").validation_per_class
    common = {"options": FAST, "start": str(start), "schedule": {"epochs": 1}} | changes
    with pytest.raises(RecipeError, match=rf"validation_per_class {kept + 1}: .* it held out {kept} a class"):
        train(recipe(method, validation_per_class=kept + 1, **common), tmp_path / "more")
    train(recipe(method, validation_per_class=kept, **common), tmp_path / "as_many")


def test_held_out_images_count_that_any_model_before_was_trained_on(start, tmp_path):
    """The first held out 20 a class, the second 5, of the last: so the third may adapt to 5 alone."""
    one_epoch = {"options": FAST, "schedule": {"epochs": 1}}
    train(recipe("pgd_at", start=str(start), validation_per_class=5, **one_epoch), tmp_path / "second")
    train(recipe("pgd_at", start=str(tmp_path / "second"), validation_per_class=20, **one_epoch), tmp_path / "third")
    cards = [yaml.safe_load((tmp_path / name / "card.yaml").read_text()) for name in ("second", "third")]
    assert [card["training"]["unseen_per_class"] for card in cards] == [5, 5]
    third = {"start": str(tmp_path / "third"), **one_epoch}
    with pytest.raises(RecipeError, match="or a model it came from, was trained on some of these images"):
        train(recipe("frl", validation_per_class=6, **third), tmp_path / "six")
    train(recipe("frl", validation_per_class=5, **third), tmp_path / "five")
