"""The examples in docstrings are true."""

import doctest
import pkgutil
from importlib import import_module

import pytest

import fairbench

MODULES = [name for _, name, _ in pkgutil.walk_packages(fairbench.__path__, "fairbench.") if "__main__" not in name]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_are_what_it_does(name):
    found = doctest.testmod(import_module(name))
    assert not found.failed


def test_there_are_examples():
    finder = doctest.DocTestFinder()
    tried = [test for name in MODULES for test in finder.find(import_module(name)) if test.examples]
    assert len(tried) > 40
