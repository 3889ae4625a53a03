"""A recipe: everything that determines a training, as plain data in one YAML file of ``model_zoo/recipes``."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from fairbench.datasets.named import has_features
from fairbench.errors import RecipeError
from fairbench.files import data_folder, user_path
from fairbench.plain_yaml import parse_yaml
from fairbench.registry import is_own_code, suggest
from fairbench.training.methods import METHODS


class _Plain(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class OptimizerRecipe(_Plain):
    """SGD with momentum, or Adam."""

    name: Literal["sgd", "adam"] = "sgd"
    lr: Annotated[float, Field(gt=0)] = 0.1
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: Annotated[float, Field(ge=0)] = 5e-4


class ScheduleRecipe(_Plain):
    """Learning-rate schedule; milestones and warm-up are shares of the training.

    ``epochs_per_pass`` cuts each pass over the training set in that many epochs, none with an example of another's:
    where a pass takes an hour, methods that adapt after each epoch do so more often, and a killed run loses less.
    """

    name: Literal["constant", "piecewise", "cosine", "one_cycle"] = "one_cycle"
    epochs: Annotated[int, Field(ge=1)] = 15
    epochs_per_pass: Annotated[int, Field(ge=1)] = 1
    milestones: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = ()
    gamma: Annotated[float, Field(gt=0, le=1)] = 0.1
    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.3


class AugmentationRecipe(_Plain):
    """Random crop after padding by ``crop`` pixels; random horizontal flip."""

    crop: Annotated[int, Field(ge=0, le=64)] = 0
    flip: bool = False


class Recipe(_Plain):
    """One training. Unknown keys are refused.

    ``start`` names the model it starts from. ``select`` says which epoch's weights are the result: the last's, or those
    of the least average or worst-class robust error on the held-out training images (``validation_per_class`` of each
    class, never the test split). ``tuned`` says what was chosen by looking at them. ``normalize`` puts the mean and the
    standard deviation of the training inputs inside the model; ``balance`` repeats the examples of the smaller classes
    until each has as many as the largest (``sooksatra2022``: class 1 of Adult).
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]*$")] = "custom"
    title: str = ""
    method: str
    variant: str | None = None
    options: dict[str, Any] = {}
    architecture: str
    dataset: str
    start: str | None = None
    optimizer: OptimizerRecipe = OptimizerRecipe()
    schedule: ScheduleRecipe = ScheduleRecipe()
    batch_size: Annotated[int, Field(ge=1)] = 128
    augmentation: AugmentationRecipe = AugmentationRecipe()
    ema: Annotated[float, Field(gt=0, lt=1)] | None = None
    validation_per_class: Annotated[int, Field(ge=0)] = 300
    validation_epsilon: Annotated[float, Field(gt=0)] = 8 / 255
    select: Literal["last", "avg_rob", "worst_rob"] = "last"
    precision: Literal["32", "bf16"] = "32"
    drop_classes: tuple[int, ...] = ()
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    tuned: str = "nothing"
    normalize: bool = False
    balance: bool = False

    @field_validator("precision", mode="before")
    @classmethod
    def _as_evaluations_say_it(cls, said: Any) -> Any:
        return "32" if said in ("fp32", 32) else said  # YAML reads a bare 32 as a number

    @field_validator("drop_classes")
    @classmethod
    def _each_class_once(cls, dropped: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(set(dropped)))

    @model_validator(mode="after")
    def _fits_its_inputs(self) -> Self:
        if not self.has_features and self.validation_epsilon > 1:
            raise ValueError("validation_epsilon should be less than or equal to 1: pixels are in [0, 1]")
        if self.has_features and (self.augmentation.crop or self.augmentation.flip):
            raise ValueError(f"augmentation: {self.dataset} holds features, which are not cropped or flipped")
        return self

    @property
    def has_features(self) -> bool:
        """Whether it trains on feature vectors, so that radii may be above 1."""
        return has_features(self.dataset)

    def changed(self, settings: Mapping[str, Any]) -> "Recipe":
        """Return the recipe with keys set: its own (``batch_size``, ``schedule.epochs``) or the method's (``beta``).

        Raises
        ------
        RecipeError
            An unknown key (the valid ones are named), or a bad value.
        """
        data = self.model_dump(mode="json")
        data["method"] = settings.get("method", self.method)  # first: the other keys may be the new method's
        said = {*self.model_fields_set, "method", "options"}  # what is left to its default stays so
        for key, value in settings.items():
            section, _, leaf = key.rpartition(".")
            said.add(section or leaf)
            inner = data.get(section)
            target = data if not section else inner if isinstance(inner, dict) else {}
            if leaf in target and not isinstance(target[leaf], dict):
                target[leaf] = _read(value, target[leaf])
            elif "." not in key and (":" in data["method"] or key in METHODS[data["method"]].options()):
                data["options"][key] = value
            else:
                raise RecipeError(f"recipe {self.name}: no key '{key}'.{_hint(key, _keys(data, data['method']))}")
        return parse_recipe({key: value for key, value in data.items() if key in said}, self.name)

    def relabelled(self, settings: Mapping[str, Any]) -> "Recipe":
        """Return the recipe under a name and title that say what was changed, where none was given with the changes."""
        if not settings:
            return self
        changes = ", ".join(f"{key}={value}" for key, value in settings.items())
        labels = {"name": f"{self.name}_changed", "title": f"{self.title or self.name}; changed: {changes}"}
        return self.model_copy(update={key: text for key, text in labels.items() if key not in settings})


def _read(value: Any, old: Any) -> Any:
    """Read text as YAML, unless what it replaces is text (or nothing yet, which is text too)."""
    if not isinstance(value, str) or isinstance(old, str) or (old is None and not _is_number(value)):
        return value
    above, slash, below = value.partition("/")
    if isinstance(old, float) and slash and _is_number(above) and _is_number(below) and float(below):
        return float(above) / float(below)
    try:
        return parse_yaml(value)
    except yaml.YAMLError:
        return value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _hint(key: str, known: list[str]) -> str:
    """Suggest "schedule.epochs" for "epochs", else the nearest key."""
    nested = [name for name in known if name.rpartition(".")[2] == key]
    return f" Did you mean '{nested[0]}'?" if nested else suggest(key, known)


def _keys(data: Mapping[str, Any], method: str) -> list[str]:
    """Return every key that can be set."""
    own = [k for k, v in data.items() if not isinstance(v, dict)]
    nested = [f"{k}.{leaf}" for k, v in data.items() if isinstance(v, dict) and k != "options" for leaf in v]
    return [*own, *nested, *([] if ":" in method else METHODS[method].options())]


def parse_recipe(data: Any, source: str) -> Recipe:
    """Check plain data against the schema.

    Raises
    ------
    RecipeError
        It is not a recipe; the first fault is named.
    """
    try:
        return Recipe.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "recipe"
        raise RecipeError(f"recipe {source}: {where}: {first['msg']}.") from error


def recipe_names() -> list[str]:
    """Return the names of the shipped recipes, sorted."""
    return sorted(path.stem for path in (data_folder("model_zoo") / "recipes").glob("*.yaml"))


def load_recipe(name: str) -> Recipe:
    """Read a shipped recipe by name, or a YAML file by path.

    Raises
    ------
    RecipeError
        No such recipe (the nearest is suggested), or it does not fit the schema.
    """
    is_path = name.endswith((".yaml", ".yml"))
    path = user_path(name) if is_path else data_folder("model_zoo") / "recipes" / f"{name}.yaml"
    if is_path and not path.is_file():
        raise RecipeError(f"no recipe file {path}; `fairbench recipes` lists the shipped ones, named without .yaml.")
    if not path.is_file():
        raise RecipeError(f"unknown recipe '{name}'.{suggest(name, recipe_names(), 'fairbench recipes')}")
    try:
        recipe = parse_recipe(parse_yaml(path.read_text(encoding="utf-8")), name)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, OSError) as error:
        raise RecipeError(f"recipe {path}: not readable YAML ({error}).") from error
    return without_own_code(recipe, f"recipe {name}")


def without_own_code(recipe: Recipe, where: str) -> Recipe:
    """Return a recipe that was read from a file, if nothing in it names code to import.

    Raises
    ------
    RecipeError
        Its method or architecture does.
    """
    if ":" in recipe.method:
        raise RecipeError(f"{where}: method '{recipe.method}': a file runs no code of one's own; use --method.")
    if is_own_code(recipe.architecture):
        raise RecipeError(
            f"{where}: architecture '{recipe.architecture}': a file runs no code of one's own; use --arch."
        )
    return recipe
