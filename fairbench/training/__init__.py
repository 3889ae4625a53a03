"""Training: a recipe and a dataset in; a model of the zoo out."""

from fairbench.training.method import ClassErrors, Context, Method, option
from fairbench.training.recipe import Recipe, load_recipe
from fairbench.training.train import train

__all__ = ["ClassErrors", "Context", "Method", "Recipe", "load_recipe", "option", "train"]
