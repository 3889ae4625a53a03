"""Attacks of one's own: judged, resumed and told apart like built-in ones; what is wrong with them is one line."""

import random
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch
from linear_models import linear, run

from fairbench import Protocol, evaluate, summarize
from fairbench.attacks.base import PIXELS, ThreatModel
from fairbench.attacks.own import OwnAttack
from fairbench.datasets import Dataset
from fairbench.errors import FairbenchError, ProtocolError
from fairbench.evaluation.runner import identify

OPTIMAL = """
    def optimal(model, x, y, epsilon):
        weight = model[1].weight
        return x - epsilon * (weight[y] - weight[1 - y]).sign().view_as(x)
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write a module of attacks and return what names a function of it; each call is another module."""
    monkeypatch.syspath_prepend(str(tmp_path))
    written = []

    def named(source: str, function: str) -> str:
        module = f"attacks_{abs(hash(tmp_path))}_{len(written)}"
        written.append(module)
        (tmp_path / f"{module}.py").write_text(textwrap.dedent(source))
        return f"{module}:{function}"

    return named


@pytest.fixture
def data() -> Dataset:
    """Two classes of grey noise."""
    images = np.random.default_rng(0).integers(80, 176, (60, 1, 4, 4), dtype=np.uint8)
    return Dataset("mine", images, np.repeat([0, 1], 30), ("a", "b"))


def built(target: str, epsilon: float = 0.1) -> OwnAttack:
    (attack,) = Protocol(attacks=(target,), epsilon=epsilon).build_attacks(2, PIXELS)
    return attack


def test_the_optimal_attack_on_a_linear_model_breaks_what_its_margin_says(write):
    model, x = linear(), torch.full((40, 1, 4, 4), 0.5) + 0.1 * torch.randn(40, 1, 4, 4)
    y = model(x).argmax(1)
    found, passes = run(built(write(OPTIMAL, "optimal"), 0.05), model, x, y)
    weight = model[1].weight
    margin = (model(x)[:, 0] - model(x)[:, 1]).abs()
    assert (found["optimal_pred"] != y.numpy()).tolist() == (
        margin < 0.05 * (weight[0] - weight[1]).abs().sum()
    ).tolist()
    assert passes == 20 * 40


def test_what_leaves_the_ball_is_projected(write):
    far = write("def far(model, x, y): return x * 0 + y.view(-1, 1, 1, 1)", "far")
    model, x = linear(), torch.full((4, 1, 4, 4), 0.5)
    found, _ = run(built(far, 1e-6), model, x + 0.2, model(x + 0.2).argmax(1))
    assert (found["far_pred"] == model(x + 0.2).argmax(1).numpy()).all()


def test_it_runs_by_name_beside_built_in_ones(write, data):
    target = write(OPTIMAL, "optimal")
    protocol = Protocol.named("quick", attacks=f"pgd20,{target}", epsilon="4/255")
    outcomes = evaluate(linear(), data, protocol, device="cpu")
    assert outcomes.attacks == ("pgd20", "optimal")
    pgd20, optimal = (summarize(outcomes).attacks[name] for name in outcomes.attacks)
    assert optimal.avg_rob >= pgd20.avg_rob > pgd20.avg_std
    kept = outcomes.manifest["attacks"]["optimal"]
    assert (kept["function"], kept["epsilon"], len(kept["code_sha256"])) == (target, 4 / 255, 64)


def test_it_gets_what_it_asks_for_and_cannot_touch_what_others_see(write, data):
    target = write(
        """
        def asks(model, x, y, *, index, seed, num_classes, epsilon, steps=7):
            assert (num_classes, seed, steps, epsilon) == (2, 3, 7, 8 / 255)
            assert index.tolist() == sorted(index) and len(index) == len(x)
            x.fill_(0), y.fill_(0), index.fill(0)
            return x + model(x).sum() * 0
        """,
        "asks",
    )
    plain = evaluate(linear(), data, Protocol(attacks=("pgd1",)), device="cpu")
    outcomes = evaluate(linear(), data, Protocol(attacks=(target, "pgd1"), seed=3), device="cpu", batch_size=17)
    assert outcomes.frame[["index", "label", "clean_pred"]].equals(plain.frame[["index", "label", "clean_pred"]])


RANDOM = """
    import random

    import numpy as np
    import torch

    def drawn(model, x, y):
        shape = tuple(x.shape)
        noise = torch.randn(shape) + torch.from_numpy(np.random.standard_normal(shape)) + random.gauss(0, 1)
        return x + noise.sign().to(x)
"""


def test_what_it_draws_depends_on_seed_and_batch_alone(write):
    attack, model = built(write(RANDOM, "drawn")), linear()
    x, y, index = torch.full((8, 1, 4, 4), 0.5), torch.zeros(8, dtype=torch.int64), np.arange(8)

    def points(seed: int, index: np.ndarray) -> torch.Tensor:
        own = OwnAttack.named(attack.target, "drawn", ThreatModel(0.1), 2, seed)
        return own(model, x, y, index, verify=None, tick=lambda _: None).adversarial

    torch.manual_seed(5), np.random.seed(5), random.seed(5)  # noqa: NPY002
    expected = torch.rand(1), np.random.rand(), random.random()  # noqa: NPY002
    torch.manual_seed(5), np.random.seed(5), random.seed(5)  # noqa: NPY002
    first = points(0, index)
    assert (torch.rand(1), np.random.rand(), random.random()) == expected  # noqa: NPY002
    assert torch.equal(points(0, index), first)
    assert not torch.equal(points(1, index), first)
    assert not torch.equal(points(0, index + 8), first)


def test_a_function_is_named_by_itself_in_python(write, data, monkeypatch):
    target = write(OPTIMAL, "optimal")
    module = __import__(target.partition(":")[0])
    assert Protocol(attacks=("pgd20", module.optimal)).attacks == ("pgd20", target)


def test_another_source_is_another_run(write, data, tmp_path):
    source = "from step_of_mine import STEP\n\ndef mine(model, x, y): return x + STEP\n"
    (tmp_path / "step_of_mine.py").write_text("STEP = 0.1")
    target = write(source, "mine")
    home = Path(tmp_path, target.partition(":")[0]).with_suffix(".py")

    def name() -> str:
        return identify(linear(), data, Protocol(attacks=(target,)), device="cpu")

    first = name()
    (tmp_path / "step_of_mine.py").write_text("STEP = 0.2")
    second = name()
    home.write_text(source.replace("+ STEP", "- STEP"))
    assert len({first, second, name()}) == 3


@pytest.mark.parametrize(
    ("source", "function", "message"),
    [
        ("", "gone", "has no function 'gone'"),
        ("def mine(model, x, y): ...", "mein", "has no function 'mein'. Did you mean 'mine'?"),
        ("class Mine: ...", "Mine", r"it is a class; give a function, def Mine\(model, x, y, epsilon\)"),
        (
            "def few(model, x): ...",
            "few",
            r"cannot be called with model, x, y .*; write def few\(model, x, y, epsilon\)",
        ),
        ("def more(model, x, y, alpha): ...", "more", "missing a required argument: 'alpha'"),
        ("def none(model, x, y): ...", "none", r"returned a NoneType; return adversarial inputs in the shape of x"),
        ("def cut(model, x, y): return x[1:]", "cut", r"returned a tensor of \(59, 1, 4, 4\)"),
        ("def nan(model, x, y): return x / 0 - x / 0", "nan", "returned NaN or infinity for example 0"),
        ("def bad(model, x, y): return x @ y", "bad", "attack .*:bad raised RuntimeError"),
        ("def leaves(model, x, y): raise SystemExit(3)", "leaves", "attack .*:leaves raised SystemExit: 3"),
        ("made = eval('lambda model, x, y: x')", "made", "it lies in no file"),
        ("def pgd20(model, x, y): return x", "pgd20", "'pgd20' is a built-in column; give the function another name"),
        ("def least_epsilon(model, x, y): return x", "least_epsilon", "'least-epsilon' is a built-in column"),
        ("def clean(model, x, y): return x", "clean", "'clean' is a built-in column"),
        ("def _hidden(model, x, y): return x", "_hidden", "'-hidden' is no column"),
        ("raise ValueError('no')", "mine", "importing .* raised ValueError: no"),
    ],
)
def test_what_is_wrong_is_one_line(source, function, message, write, data):
    with pytest.raises(FairbenchError, match=message) as caught:
        evaluate(linear(), data, Protocol(attacks=(write(source, function),)), device="cpu")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("attacks", "message"),
    [
        (("my_attacks:one", "other:one"), "one stands twice"),
        (("my_attacks:one", "other:One"), "one stands twice"),
        (("my_attacks.one",), "One's own is 'my_attacks.one:FUNCTION'"),
        (("my_attacks.py",), "One's own is 'my_attacks:FUNCTION'"),
        ((lambda model, x, y: x,), "give a name such as 'pgd20', or a function of a module"),
        ((20,), "attack 20: give a name"),
    ],
)
def test_a_name_that_cannot_be_one_is_one_line(attacks, message):
    with pytest.raises(ProtocolError, match=message):
        Protocol(attacks=attacks)


def test_options_that_it_cannot_read_are_refused():
    with pytest.raises(ProtocolError, match="--step is for pgdN or least-steps, and the attacks are my_attacks:one"):
        Protocol.named("quick", attacks="my_attacks:one", step=0.1)
    assert Protocol.named("quick", attacks="my_attacks:one", epsilon=0.1).epsilon == 0.1
