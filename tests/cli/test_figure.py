"""``fairbench figure``: a paper's figure from kept results."""

import pytest
from PIL import Image

from fairbench.cli.figure import FIGURES


def test_it_lists_the_figures(cli):
    ran = cli("figure")
    assert [line.split()[0] for line in ran.out.splitlines()] == list(FIGURES)
    assert [FIGURES[key].key for key in FIGURES] == list(FIGURES)


@pytest.mark.parametrize(("key", "dataset"), [("sun2023-4", "fashion_mnist"), ("refrl2022-2", None)])
def test_it_draws_kept_results_the_same_twice(key, dataset, cli, tmp_path):
    options = [] if dataset is None else ["--dataset", dataset]
    paths = [tmp_path / name for name in ("a.png", "b.png")]
    for path in paths:
        ran = cli("figure", key, "--out", path, *options)
        assert (ran.code, ran.out, ran.err.count("\n")) == (0, f"{path}\n", 1)
        assert ran.err.startswith("note: Trained here: ")
    assert paths[0].read_bytes() == paths[1].read_bytes()
    with Image.open(paths[0]) as picture:
        assert picture.width > 900


def test_results_that_are_missing_are_one_line_that_names_them(cli, tmp_path):
    ran = cli("figure", "sun2023-4", "--dataset", "cifar100", "--out", tmp_path / "f.png")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "results not kept yet: pgd_at_resnet18_cifar100.standard, trades6_resnet18_cifar100" in ran.err
    assert "All are there for --dataset CIFAR-10, Fashion-MNIST" in ran.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sun2023-5"], "unknown figure 'sun2023-5'"),
        (["sun2023-4", "--dataset", "svhn"], "no dataset 'svhn'"),
        (["sun2023-4", "--out", "x.pdf"], "ends in .png"),
    ],
)
def test_bad_input_is_one_line(arguments, message, cli):
    ran = cli("figure", *arguments)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert message in ran.err
