"""Methods and architectures of one's own: they train like built-in ones, and what is wrong with them is one line."""

import sys
import textwrap
from dataclasses import dataclass

import pytest
from made_runs import FAST, read_history, recipe

from fairbench import Protocol, evaluate, load_dataset, load_model
from fairbench.errors import FairbenchError, RecipeError
from fairbench.training import train
from fairbench.training.fit import build_method
from fairbench.training.method import Method, option


def test_a_method_of_ones_own_trains(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        textwrap.dedent("""
        from dataclasses import dataclass
        import torch.nn.functional as F
        from fairbench.training import Method, option

        @dataclass
        class Smooth(Method):
            name = "smooth"
            source = "mine"
            smoothing: float = option(0.1, "mine")

            def loss(self, model, x, y):
                return F.cross_entropy(model(x), y, label_smoothing=self.smoothing)
        """)
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    train(recipe("mine:Smooth", options={"smoothing": 0.2}), tmp_path / "run")
    assert float(read_history(tmp_path / "run")[-1]["avg_std"]) < 60


def test_an_architecture_of_ones_own_trains_and_is_evaluated_by_name(tmp_path, monkeypatch):
    (tmp_path / "own_net.py").write_text(
        textwrap.dedent("""
        from torch import nn

        def net(num_classes, shape):
            c, h, w = shape
            return nn.Sequential(nn.Flatten(), nn.Linear(c * h * w, num_classes))
        """)
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    model = train(recipe("standard", architecture="own_net:net"), tmp_path / "run")
    assert model.architecture == "own_net:net"
    with pytest.raises(FairbenchError, match="a card runs no code of one's own; say so with --arch own_net:net"):
        load_model(tmp_path / "run")
    with pytest.raises(FairbenchError, match="is a own_net:net, its card says"):
        load_model(tmp_path / "run", arch="small_cnn")
    again = load_model(tmp_path / "run", arch="own_net:net", shape=(1, 8, 8))
    assert again.sha256 == model.sha256


OWN = textwrap.dedent("""
    from dataclasses import dataclass
    import numpy as np
    from torch import nn
    import torch.nn.functional as F
    from fairbench.training import Method, option

    class Base(Method):
        name, source = "own", "mine"

    class Vector(Base):
        def loss(self, model, x, y):
            return F.cross_entropy(model(x), y, reduction="none")

    class Raises(Base):
        def loss(self, model, x, y):
            raise KeyError("it broke\\nbadly")

    class Exits(Base):
        def loss(self, model, x, y):
            raise SystemExit("enough")

    class Plain(Base):
        def loss(self, model, x, y):
            return F.cross_entropy(model(x), y)

    class Nameless(Method):
        def loss(self, model, x, y):
            return F.cross_entropy(model(x), y)

    class Setup(Plain):
        def setup(self, context):
            raise ValueError("it broke")

    class TrainingSet(Plain):
        def training_set(self, data):
            return None

    class Begin(Plain):
        def begin(self, validate):
            raise ValueError("it broke")

    class StartEpoch(Plain):
        def start_epoch(self, epoch):
            pass

    class EndEpoch(Plain):
        def end_epoch(self, validate):
            raise ValueError("it broke")

    class AverageDecay(Plain):
        def average_decay(self, validate):
            return "0.9"

    class State(Plain):
        state_fields = ("missing",)

    class Backward(Plain):
        def loss(self, model, x, y):
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

    @dataclass
    class Post(Plain):
        def __post_init__(self):
            raise ValueError("it broke")

    @dataclass
    class NoDefault(Plain):
        share: float = option(None, "mine")

    @dataclass
    class NamedEpsilon(Plain):
        epsilon: str = option("small", "mine")

    class NumpyState(Base):
        state_fields = ("w",)

        def setup(self, context):
            super().setup(context)
            self.w = np.ones(3)

        def loss(self, model, x, y):
            return F.cross_entropy(model(x), y)

    @dataclass
    class PathOption(Base):
        layers: tuple = option((1, 2), "mine")

    @dataclass
    class BigEpsilon(Base):
        epsilon: float = option(8.0, "a slip of scale")

    class View(nn.Module):
        def __init__(self, num_classes):
            super().__init__()
            self.conv, self.head = nn.Conv2d(1, 4, 3), nn.Linear(4 * 36, num_classes)

        def forward(self, x):
            x = self.conv(x)
            return self.head(x.view(x.size(0), -1))

    def twelve():
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 12))

    def wide():
        return nn.Sequential(nn.Flatten(), nn.Linear(1024, 10))
""")


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_code.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_code", raising=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "own_code:Vector"}, r"own_code:Vector failed at epoch 0, step 0 .*scalar tensor with a gradient"),
        ({"method": "own_code:Raises"}, r"own_code:Raises failed at epoch 0, step 0 .*KeyError: 'it broke"),
        ({"method": "own_code:Exits"}, r"own_code:Exits failed at epoch 0, step 0 .*SystemExit: enough"),
        ({"method": "own_code:Nameless"}, "the class states no name"),
        ({"method": "own_code:Setup"}, "own_code:Setup failed in setup: ValueError: it broke"),
        ({"method": "own_code:TrainingSet"}, "failed in training_set: TypeError"),
        ({"method": "own_code:Begin"}, "failed in begin: ValueError: it broke"),
        ({"method": "own_code:StartEpoch"}, "failed in start_epoch of epoch 0: TypeError"),
        ({"method": "own_code:EndEpoch"}, "failed at the end of epoch 0: ValueError: it broke"),
        ({"method": "own_code:AverageDecay"}, "failed at the end of epoch 0: TypeError"),
        ({"method": "own_code:State"}, "failed in state: AttributeError: .*missing"),
        ({"method": "own_code:Backward"}, "failed at epoch 0, step 0 on .*second time"),
        ({"method": "own_code:Post"}, "method own cannot be made: ValueError: it broke"),
        ({"method": "own_code:NoDefault", "options": {"share": 1}}, "share is a NoneType"),
        ({"method": "own_code:NamedEpsilon"}, "epsilon is 'small'; it must be a number"),
        ({"method": "own_code:NumpyState"}, r"its state \(w\) is not plain data"),
        ({"method": "own_code:PathOption"}, "option layers is a tuple"),
        ({"method": "own_code:BigEpsilon"}, "epsilon 8: pixels are in"),
        ({"architecture": "own_code:twelve"}, r"returns \(2, 12\) for 2 images of 10 classes"),
        ({"architecture": "own_code:wide"}, r"own_code:wide cannot take images of 1x8x8"),
        ({"method": "wat", "validation_per_class": 0}, "adapts to held-out training images"),
        ({"method": "frl", "start": "START", "options": {"halve_every": 0}}, "halve_every 0: it must be at least 1"),
        ({"method": "gairat", "options": {"steps": 0}}, "steps 0: it must be at least 1"),
        ({"method": "dafa", "options": {"strength": 1e4, "warm_up": 0.1}}, "is not positive: lower strength"),
    ],
)
def test_what_cannot_work_is_said_before_or_at_the_first_epoch_in_one_line(changes, message, start, tmp_path, own):
    changes = {k: str(start) if v == "START" else v for k, v in changes.items()}
    with pytest.raises(RecipeError, match=message) as caught:
        train(recipe(**{"method": "standard", **changes}), tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run" / "card.yaml").exists()


def test_an_edited_method_of_ones_own_is_another_run(tmp_path, own, monkeypatch):
    text = "from fairbench.training.methods.standard import Standard\n\nclass Mine(Standard):\n    name = 'mine'\n"
    (tmp_path / "mine_edited.py").write_text(text)
    train(recipe("mine_edited:Mine", schedule={"epochs": 1}), tmp_path / "run")
    train(recipe("mine_edited:Mine", schedule={"epochs": 1}), tmp_path / "run")
    (tmp_path / "mine_edited.py").write_text(text + "    # edited\n")
    monkeypatch.delitem(sys.modules, "mine_edited")
    with pytest.raises(RecipeError, match=r"another run \(it differs in method_sha256\)"):
        train(recipe("mine_edited:Mine", schedule={"epochs": 1}), tmp_path / "run")


def test_a_network_written_for_one_memory_layout_trains_and_is_evaluated(tmp_path, own):
    train(recipe("pgd_at", architecture="own_code:View", options=FAST, schedule={"epochs": 1}), tmp_path / "run")
    model = load_model(tmp_path / "run", arch="own_code:View")
    outcomes = evaluate(model, load_dataset("digits"), Protocol.named("quick", steps=2), runs=tmp_path / "runs")
    assert not any("disagreed" in text for text in outcomes.manifest["warnings"])


OPTIONS = """
import torch.nn.functional as F
from fairbench.training import Method, option

class Plain(Method):
    name = "plain"
    source = "mine"
    share: float = option(0.1, "mine")

    def loss(self, model, x, y):
        return self.share * F.cross_entropy(model(x), y)
"""


def test_options_of_ones_own_method(tmp_path, monkeypatch):
    (tmp_path / "own_options.py").write_text(OPTIONS)
    monkeypatch.syspath_prepend(str(tmp_path))
    message = "method plain: the class Plain declares the option share and is no dataclass; write @dataclass above it"
    for options in ({}, {"share": 0.3}):
        with pytest.raises(RecipeError, match=message):
            build_method(recipe("own_options:Plain", options=options))


@dataclass
class WholeDefault(Method):
    """An option whose default is written without a point."""

    name = "whole"
    source = "test"
    beta: float = option(6, "test")
    count: int = option(3, "test")


def test_an_option_is_of_the_type_it_is_annotated_with():
    assert WholeDefault.configured({"beta": "1.5"}).beta == 1.5
    assert WholeDefault.configured({"count": "2"}).count == 2
    with pytest.raises(RecipeError, match="count is a int"):
        WholeDefault.configured({"count": "1.5"})
