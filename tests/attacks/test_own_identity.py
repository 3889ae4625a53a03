"""An attack of one's own is another run when anything changed that it depends on, and only then."""

import importlib
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import torch
from linear_models import linear
from torch import nn

import fairbench
from fairbench import Protocol, evaluate
from fairbench.attacks.base import PIXELS
from fairbench.evaluation.runner import identify
from fairbench.own_code import is_installed, with_imports


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
    target = write("def mine(model, x, y):\n    import pandas.api as pd, os\n    return x", "mine")
    (attack,) = Protocol(attacks=(target,)).build_attacks(2, PIXELS)
    assert attack.parameters()["packages"] == {"pandas": version("pandas")}
