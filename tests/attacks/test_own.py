"""Attacks of one's own: judged, resumed and told apart like built-in ones; what is wrong with them is one line."""

import importlib
import random
import re
import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from linear_models import linear, run
from torch import nn

from fairbench import Protocol, evaluate, summarize
from fairbench.attacks.base import PIXELS, UNBOUNDED, ThreatModel
from fairbench.attacks.own import OwnAttack
from fairbench.errors import FairbenchError, ProtocolError

OPTIMAL = """
    def optimal(model, x, y, epsilon):
        weight = model[1].weight
        return x - epsilon * (weight[y] - weight[1 - y]).sign().view_as(x)
"""


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


def test_a_function_is_named_by_itself_in_python(write):
    target = write(OPTIMAL, "optimal")
    module = importlib.import_module(target.partition(":")[0])
    assert Protocol(attacks=("pgd20", module.optimal)).attacks == ("pgd20", target)
    assert Protocol(attacks=module.optimal).attacks == (target,)


def test_a_function_that_its_name_does_not_mean_is_refused(write):
    target = write(
        """
        from functools import wraps

        def strong(model, x, y): return x

        @wraps(strong)
        def stronger(model, x, y): return 1 - x
        """,
        "stronger",
    )
    module = importlib.import_module(target.partition(":")[0])
    with pytest.raises(ProtocolError, match="that name means another function than the one given"):
        Protocol(attacks=(module.stronger,))


def test_a_function_that_was_typed_in_is_refused(data):
    typed = ModuleType("typed_in")
    exec("def mine(model, x, y): return x", vars(typed))
    sys.modules["typed_in"] = typed
    try:
        with pytest.raises(ProtocolError, match="it lies in no file"):
            evaluate(linear(), data, Protocol(attacks=(typed.mine,)), device="cpu")
    finally:
        del sys.modules["typed_in"]


HARMS = """
    import torch

    def trains(model, x, y):
        model.train()
        model(x)
        return x

    def zeroes(model, x, y):
        with torch.no_grad():
            for p in model.parameters():
                p.zero_()
        return x

    def hooks(model, x, y):
        model[1].register_forward_hook(lambda module, given, found: -found)
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        torch.set_num_threads(3)
        torch.use_deterministic_algorithms(True)
        torch.set_float32_matmul_precision("medium")
        torch.backends.cudnn.benchmark = True
        return x

    def flips(model, x, y):
        with torch.no_grad():
            for p in model.parameters():
                p.neg_()
        return x + 0.01 * (model(x).argmax(1) == y).view(-1, 1, 1, 1)
"""


@pytest.mark.parametrize(
    ("returned", "warning"),
    [
        ("x", r"mine: \d+ of \d+ examples that are classified right came back as they were; they count as withst"),
        ("x * 255", r"mine: 60 of 60 points were outside the ball, up to \d+ from the example where epsilon is 0.0314"),
        ("x + 0.05 * (index[0] == 0)", r"mine: 20 of 60 points were outside the ball, up to 0.05 from"),
        ("x + 8 / 255", None),
    ],
)
def test_an_attack_that_looks_wrong_is_warned_of(returned, warning, write, data):
    target = write(f"def mine(model, x, y, index): return {returned}", "mine")
    outcomes = evaluate(linear(), data, Protocol(attacks=(target,)), device="cpu", batch_size=20)
    other = evaluate(linear(1), data, Protocol(attacks=(target,)), device="cpu", batch_size=20, transfer_from=linear())
    for found in (outcomes, other):
        about = [said for said in found.manifest["warnings"] if said.startswith("mine:")]
        assert bool(about) == (warning is not None)
        assert warning is None or any(re.search(warning, said) for said in about)


def test_rounding_of_large_features_is_not_outside_the_ball(write):
    target = write("def mine(model, x, y, epsilon): return x + epsilon", "mine")
    x = torch.tensor([[1_484_705.0, 0.5]] * 4)
    threat_model = ThreatModel(0.1, UNBOUNDED)
    own = OwnAttack.named(target, "mine", threat_model, 2, 0)
    model = nn.Linear(2, 2)
    found, _ = run(own, model, x, torch.zeros(4, dtype=torch.int64))
    assert found["mine_distance"].max() > 0.1
    assert not found["mine_outside"].any()


def process_settings():
    return (
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(),
        torch.backends.cudnn.benchmark,
    )


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("function", ["trains", "zeroes", "hooks", "flips"])
def test_what_it_does_to_the_model_is_gone_with_the_batch(function, precision, write, data):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 2))
    target = write(HARMS, function)
    options = {"device": "cpu", "batch_size": 7, "precision": precision}
    settings = process_settings()
    plain = evaluate(model, data, Protocol(attacks=("pgd5",)), **options)
    beside = evaluate(model, data, Protocol(attacks=(target, "pgd5")), **options)
    assert beside.frame["pgd5_pred"].equals(plain.frame["pgd5_pred"])
    alone = evaluate(model, data, Protocol(attacks=(target,)), device="cpu", batch_size=60)
    assert settings == process_settings()
    assert beside.frame[f"{function}_pred"].equals(alone.frame[f"{function}_pred"])


def test_the_model_it_gets_is_as_it_was_written(write, data):
    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features = nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.Conv2d(32, 32, 1))
            self.head = nn.Linear(32, 2)

        def embed(self, x):
            return self.features(x).mean((2, 3))

        def forward(self, x):
            return self.head(self.embed(x))

    target = write(
        """
        import torch

        def looks(model, x, y):
            seen = []
            model.features.register_forward_hook(lambda module, given, found: seen.append(found))
            x.requires_grad_()
            (gradient,) = torch.autograd.grad(model(x).sum() + model.embed(x).sum(), x)
            assert len(seen) == 2 and seen[0].is_contiguous()
            assert not model.training and not any(p.requires_grad for p in model.parameters())
            return x + gradient.view(len(x), -1).sign().view_as(x)
        """,
        "looks",
    )
    outcomes = evaluate(Network(), data, Protocol(attacks=(target,)), device="cpu", precision="bf16")
    assert any("gradients of looks are in float32" in note for note in outcomes.manifest["notes"])


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
        ("from functools import partial\nmine = partial(print)", "mine", "it is a partial; give a function"),
        ("def none(model, x, y): ...", "none", r"returned a NoneType; return adversarial inputs in the shape of x"),
        ("def cut(model, x, y): return x[1:]", "cut", r"returned a tensor of \(59, 1, 4, 4\), float32; return"),
        ("def full(model, x, y): raise MemoryError", "full", "pass a smaller --batch-size"),
        ("class E(Exception):\n  def __str__(self): 1 / 0\ndef odd(model, x, y): raise E", "odd", ":odd raised E"),
        ("def nan(model, x, y): return x / 0 - x / 0", "nan", "returned NaN or infinity for example 0"),
        ("def bad(model, x, y): return x @ y", "bad", "attack .*:bad raised RuntimeError"),
        ("def leaves(model, x, y): raise SystemExit(3)", "leaves", "attack .*:leaves raised SystemExit: 3"),
        ("def complex_(model, x, y): return x + 0j", "complex_", r"returned a tensor of \(60, 1, 4, 4\), complex64"),
        ("def pgd20(model, x, y): return x", "pgd20", "'pgd20' is a built-in column; give the function another name"),
        (
            "def least_epsilon(model, x, y): return x",
            "least_epsilon",
            "columns 'least-...' are of searches; give the function another name",
        ),
        ("def clean(model, x, y): return x", "clean", "'clean' is a built-in column"),
        ("def any(model, x, y): return x", "any", "'any' is a built-in column"),
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
        ((lambda model, x, y: x,), "give a name such as 'pgd20' or 'my_attacks:mine', or a function that a module"),
        ((20,), "attack 20: give a name"),
        (20, "attack 20: give a name"),
        (("my_attacks:",), "name one's own as package.module:function"),
        ((":one",), "name one's own as package.module:function"),
        (("torchvision:one",), "unknown attack 'torchvision:one'. Known"),
    ],
)
def test_a_name_that_cannot_be_one_is_one_line(attacks, message):
    with pytest.raises(ProtocolError, match=message):
        Protocol(attacks=attacks)


def test_options_that_it_cannot_read_are_refused():
    with pytest.raises(ProtocolError, match=r"--step is for pgdN or cwN or least-steps, and .* are my_attacks:one"):
        Protocol.named("quick", attacks="my_attacks:one", step=0.1)
    assert Protocol.named("quick", attacks="my_attacks:one", epsilon=0.1).epsilon == 0.1
