"""Datasets: labelled images in memory, from a name, a file or a folder."""

from fairbench.datasets.base import Dataset
from fairbench.datasets.loading import load_dataset

__all__ = ["Dataset", "load_dataset"]
