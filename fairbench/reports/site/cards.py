"""What a model's page says of how it was made: from a submission's card, or from the card of the zoo."""

from collections.abc import Mapping
from typing import Any

from fairbench.leaderboard.card import SubmissionCard
from fairbench.leaderboard.zoo_card import passes
from fairbench.plain_yaml import dump_yaml
from fairbench.reports.values import epsilon_text

Facts = list[tuple[str, str]]
"""Names and values, in the order to show them in."""


def zoo_facts(card: Mapping[str, Any]) -> tuple[Facts, Facts]:
    """Return what a zoo card says of the model, and of its training."""
    against = card["threat_model"]
    model = [
        ("title", card["title"]),
        ("method", card["method"]),
        ("architecture", card["architecture"]),
        ("trained against", _threat(against["norm"], against["epsilon"])),
        ("licence", card["licence"]),
        ("provenance", card["provenance"]),
        ("weights, SHA-256", card["weights"]["sha256"]),
    ]
    training = card.get("training") or {}
    return _stated(model), _training(training)


def _training(training: Mapping[str, Any]) -> Facts:
    recipe = training.get("recipe") or {}
    optimizer, schedule = recipe.get("optimizer") or {}, recipe.get("schedule") or {}
    hardware = training.get("hardware") or {}
    seconds = training.get("seconds")
    options = ", ".join(f"{key} {value}" for key, value in (training.get("options") or {}).items())
    facts = [
        ("recipe", recipe.get("name")),
        ("starts from", recipe.get("start")),
        ("options of the method", options),
        ("optimizer", ", ".join(f"{k} {v}" for k, v in optimizer.items()).replace("name ", "")),
        ("schedule", schedule.get("name")),
        ("epochs", _epochs(training)),
        ("chosen epoch", _counted(training.get("chosen_epoch"), training.get("epochs"), recipe.get("select"))),
        ("batch size", recipe.get("batch_size")),
        ("precision of the training", recipe.get("precision")),
        ("training images", _thousands(training.get("training_images"))),
        ("held out for validation", _thousands(training.get("validation_images"))),
        ("chosen while tuning", recipe.get("tuned")),
        ("seed", recipe.get("seed")),
        ("time", None if seconds is None else f"{seconds / 60:,.0f} minutes on {hardware.get('processor', '?')}"),
        ("git revision", training.get("git_revision")),
        ("versions", ", ".join(f"{k} {v}" for k, v in (training.get("versions") or {}).items())),
    ]
    return _stated(facts)


def _epochs(training: Mapping[str, Any]) -> Any:
    """Say how many passes over the training set the epochs are, where a pass is cut in several."""
    epochs, count = training.get("epochs"), passes(training)
    if epochs is None or count is None or count == epochs:
        return epochs
    return f"{epochs}, each 1/{epochs / count:g} of a pass: {count:g} pass{'' if count == 1 else 'es'}"


def _counted(chosen: Any, epochs: Any, rule: Any) -> str | None:
    """Say which epoch was kept; a card counts them from 0."""
    return None if chosen is None else f"{chosen + 1} of {epochs} ({rule})"


def _thousands(value: Any) -> str | None:
    return f"{value:,}" if isinstance(value, int) else None


def submission_facts(card: SubmissionCard, version: int) -> Facts:
    """Return what a submission's card says."""
    against = card.trained_against
    return _stated(
        [
            ("title", card.title),
            ("entry", f"{card.name}.{version}" + (f", a correction of {card.replaces}" if card.replaces else "")),
            ("authors", ", ".join(card.authors)),
            ("contact", card.contact),
            ("architecture", card.architecture),
            ("trained against", "not stated" if against is None else _threat(against.norm, against.epsilon)),
            ("extra data", card.extra_data or "none"),
            ("training cost", card.training_cost or "not stated"),
            ("licence", card.licence),
            ("weights, SHA-256", card.weights.sha256),
        ]
    )


def as_yaml(card: Mapping[str, Any] | SubmissionCard) -> str:
    """Return a whole card as it would be written."""
    return dump_yaml(card.model_dump(mode="json", exclude_none=True) if isinstance(card, SubmissionCard) else card)


def _threat(norm: str, epsilon: float) -> str:
    if norm == "none":
        return "nothing (natural training)"
    return f"{norm.replace('Linf', 'L-inf')}, epsilon {epsilon_text(epsilon)}"


def _stated(facts: list[tuple[str, Any]]) -> Facts:
    return [(name, str(value)) for name, value in facts if value not in (None, "")]
