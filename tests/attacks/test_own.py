"""Attacks of one's own: judged, resumed and told apart like built-in ones; what is wrong with them is one line."""

import importlib
import random
import re
import sys
import textwrap
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from linear_models import linear, run
from torch import nn

import fairbench
from fairbench import Protocol, evaluate, summarize
from fairbench.attacks.base import PIXELS, UNBOUNDED, ThreatModel
from fairbench.attacks.own import OwnAttack
from fairbench.datasets import Dataset
from fairbench.errors import FairbenchError, ProtocolError
from fairbench.evaluation.runner import identify
from fairbench.own_code import is_installed, with_imports

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


@pytest.fixture
def anew(data):
    """Return the name of the run of an attack, as a Python that has just begun would give it."""

    def name(target: str) -> str:
        for module in [m for m in sys.modules if m.startswith(("attacks_", "beside_", "package_of_"))]:
            del sys.modules[module]
        importlib.invalidate_caches()
        return identify(linear(), data, Protocol(attacks=(target,)), device="cpu")

    return name


BESIDE = "STEP = {step}\n\ndef wrapped(function): return lambda *given: function(*given)\n"


@pytest.mark.parametrize(
    ("source", "edit"),
    [
        ("def mine(model, x, y): return x + 0.1", ("0.1", "0.2")),
        ("from beside_it import STEP\n\ndef mine(model, x, y): return x + STEP", None),
        ("import torch\n\n@torch.enable_grad()\ndef mine(model, x, y): return x + 0.1", ("0.1", "0.2")),
        ("from beside_it import wrapped\n\n@wrapped\ndef mine(model, x, y): return x + 0.1", ("0.1", "0.2")),
        ("from beside_it import STEP, wrapped\n\nmine = wrapped(lambda model, x, y: x + STEP)", None),
    ],
)
def test_another_source_is_another_run(source, edit, write, anew, tmp_path):
    (tmp_path / "beside_it.py").write_text(BESIDE.format(step=0.1))
    target = write(source, "mine")
    first = anew(target)
    assert anew(target) == first
    if edit is None:
        (tmp_path / "beside_it.py").write_text(BESIDE.format(step=0.2))
    else:
        Path(tmp_path, target.partition(":")[0]).with_suffix(".py").write_text(source.replace(*edit))
    assert anew(target) != first


def test_a_helper_in_a_package_without_init_is_code(anew, tmp_path, write):
    write("", "")  # the folder is on the path
    (tmp_path / "package_of_mine").mkdir()
    (tmp_path / "package_of_mine" / "mine.py").write_text(
        "from package_of_mine.helper import STEP\n\ndef mine(model, x, y): return x + STEP\n"
    )
    names = []
    for step in (1, 2, 1):
        (tmp_path / "package_of_mine" / "helper.py").write_text(f"STEP = {step}")
        names.append(anew("package_of_mine.mine:mine"))
    assert names[0] == names[2] != names[1]


def test_settings_and_arrays_of_its_module_are_part_of_it(write, data, tmp_path):
    np.savez(tmp_path / "given.npz", inputs=np.zeros(3))
    target = write(
        f"""
        import numpy as np
        import torch

        STEP, GIVEN, MOVED = 0.1, dict(np.load({str(tmp_path / "given.npz")!r})), torch.zeros(2)

        def mine(model, x, y, scale=1.0): return x + STEP * scale
        """,
        "mine",
    )
    module = importlib.import_module(target.partition(":")[0])

    def name() -> str:
        return identify(linear(), data, Protocol(attacks=(target,)), device="cpu")

    names = [name(), name()]
    assert names[0] == names.pop()
    module.STEP = 0.2
    names.append(name())
    module.GIVEN["inputs"][0] = 1
    names.append(name())
    module.MOVED += 1
    names.append(name())
    module.mine.__defaults__ = (2.0,)
    names.append(name())
    assert len(set(names)) == 5


@pytest.mark.parametrize("reload", [False, True])
@pytest.mark.parametrize("helper", [False, True])
def test_code_that_was_edited_after_it_was_loaded_is_not_filed_under_what_it_became(
    helper, reload, write, data, anew, tmp_path
):
    """Neither where it was named before the edit, nor where its module alone was loaded again."""
    old, new = "def moved(x): return x\n", "def moved(x): return 1 - x\n"
    (tmp_path / "beside_it.py").write_text(old)
    mine = "def mine(model, x, y): return moved(x)\n"
    target = write("from beside_it import moved\n" + mine if helper else old + mine, "mine")
    home = target.partition(":")[0]
    importlib.invalidate_caches()
    importlib.import_module(home)
    edited = tmp_path / ("beside_it.py" if helper else f"{home}.py")
    edited.write_text(edited.read_text().replace(old, new))
    if reload:
        identify(linear(), data, Protocol(attacks=(target,)), device="cpu")
        importlib.invalidate_caches()
        importlib.reload(sys.modules[home])
    loaded = identify(linear(), data, Protocol(attacks=(target,)), device="cpu")
    assert (loaded == anew(target)) == (reload and not helper)


def test_code_beside_the_package_is_code_of_ones_own():
    """As in a clone: what lies in its folder is not the package."""
    here = Path(__file__)
    assert not is_installed(here)
    assert here.parent / "linear_models.py" in with_imports(here)
    assert is_installed(Path(fairbench.__file__))


@pytest.mark.parametrize(
    "source",
    [
        "import numpy as np\nwith np.load(r'{folder}/given.npz') as FILE: X = FILE['x']",
        "from collections.abc import Mapping\nclass Odd(Mapping):\n  def __getitem__(self, k): raise ValueError\n"
        "  def __iter__(self): return iter('a')\n  def __len__(self): return 1\nODD = Odd()",
        "import torch\nSPARSE, META = torch.eye(2).to_sparse(), torch.empty(2, device='meta')",
        "NESTED = [[[[[[[[[[object()]]]]]]]]]]\nNAMES = {object(), 'a'}",
        "import numpy as np\nRECORDS = np.array([(object(),)], dtype=[('o', object)])",
        "from os import environ\nfrom sys import argv, path\nfrom pathlib import Path\nHERE = Path.cwd()",
    ],
)
def test_what_a_module_holds_beside_it_neither_breaks_nor_changes_the_name(source, write, anew, tmp_path, monkeypatch):
    np.savez(tmp_path / "given.npz", x=np.zeros(2))
    target = write(source.replace("{folder}", str(tmp_path)) + "\n\ndef mine(model, x, y): return x\n", "mine")
    first = anew(target)
    monkeypatch.setenv("ANOTHER", "one")
    monkeypatch.setattr(sys, "argv", ["another"])
    assert anew(target) == first


def test_a_network_that_it_loads_is_part_of_it(write, anew, tmp_path):
    target = write(
        f"""
        from dataclasses import dataclass
        import torch

        NET = torch.nn.Linear(2, 2)
        NET.load_state_dict(torch.load({str(tmp_path / "net.pt")!r}, weights_only=True))

        def mine(model, x, y): return x
        """,
        "mine",
    )
    names = []
    for seed in (0, 1, 0):
        torch.manual_seed(seed)
        torch.save(nn.Linear(2, 2).state_dict(), tmp_path / "net.pt")
        names.append(anew(target))
    assert names[0] == names[2] != names[1]


def test_what_it_imports_while_it_runs_does_not_rename_it(write, data, tmp_path):
    (tmp_path / "beside_late.py").write_text("STEP = 0.1")
    target = write("def mine(model, x, y):\n    from beside_late import STEP\n    return x + STEP", "mine")
    sys.modules.pop("beside_late", None)
    before = identify(linear(), data, Protocol(attacks=(target,)), device="cpu")
    evaluate(linear(), data, Protocol(attacks=(target,)), device="cpu")
    assert "beside_late" in sys.modules
    assert identify(linear(), data, Protocol(attacks=(target,)), device="cpu") == before


def test_versions_of_the_packages_it_imports_are_kept(write):
    kept = built(write("def mine(model, x, y):\n    import pandas.api as pd, os\n    return x", "mine")).parameters()
    assert kept["packages"] == {"pandas": version("pandas")}


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
    with pytest.raises(ProtocolError, match="--step is for pgdN or least-steps, and the attacks are my_attacks:one"):
        Protocol.named("quick", attacks="my_attacks:one", step=0.1)
    assert Protocol.named("quick", attacks="my_attacks:one", epsilon=0.1).epsilon == 0.1
