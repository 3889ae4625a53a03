"""benchmarks/side_by_side.py: what it makes of rounds, by hand, and which files it goes on from."""

import json
import sys
from pathlib import Path

import pytest

from fairbench.errors import FairbenchError

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def script():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        import side_by_side

        yield side_by_side
    for path in BENCHMARKS.glob("*.py"):
        sys.modules.pop(path.stem, None)


def turn(seconds, **value):
    return {"seconds": seconds, "others": 0.0, "repeated": 0, **value}


PEAK = {"float32": {"matrix product": 200.0, "3x3 convolution": 400.0}, "bfloat16": {"matrix product": 800.0}}


def test_pgd_rates_ratios_and_verdicts(script):
    group = script.Group(
        "pgd20", dict.fromkeys(["fairbench", "torchattacks", "foolbox"]), "image-steps", 100, 2e9, {"images": 5}
    )
    rounds = [
        {"fairbench": turn(1.0), "torchattacks": turn(2.0), "foolbox": turn(4.0), "peak": turn(1.0, **PEAK)},
        {"fairbench": turn(2.0), "torchattacks": turn(2.0), "foolbox": turn(4.0), "peak": turn(1.0, **PEAK)},
        {"fairbench": turn(1.0), "torchattacks": turn(1.6), "foolbox": turn(4.0), "peak": turn(1.0, **PEAK)},
    ]
    found = script.conclude(group, rounds)
    ours = found["contenders"]["fairbench"]
    assert (ours["rate"], ours["gflops"], ours["share_of_peak"]) == (100, 200, 0.5)
    assert found["contenders"]["torchattacks"]["ours_to_it"]["fairbench"] == {"median": 1.6, "min": 1.0, "max": 2.0}
    assert found["peak_gflops"] == {"bfloat16": 800, "float32": 400}
    mine, bf16 = found["verdicts"]["fairbench"], found["verdicts"]["fairbench bf16"]
    assert (mine["fastest"], mine["median"], mine["reached"]) == ("torchattacks", 1.6, True)
    assert bf16 == {"target": 2.6, "measured": False}
    text = script.render(group, found, len(rounds))
    assert "fairbench: 1.60 times torchattacks (1.00 to 2.00): at least 1.5" in text
    assert "fairbench bf16: not measured" in text


@pytest.mark.parametrize("bf16", [True, False])
def test_bf16_is_measured_where_the_processor_has_it(script, bf16, monkeypatch):
    monkeypatch.setattr(script, "computes_in_bfloat16", lambda _device: bf16)
    monkeypatch.setattr(sys, "argv", ["side_by_side.py", "--quick"])
    found = {group.kind: set(group.ours) for group in script.groups(script.parse())}
    assert found["pgd20"] == found["autoattack"] == {"fairbench"} | ({"fairbench bf16"} if bf16 else set())


def test_autoattack_counts_the_plain_calls_passes_for_all(script):
    group = script.Group("autoattack m", dict.fromkeys(["fairbench", "pyautoattack"]), "images", 4, None, {})
    one = {
        "fairbench": turn(2.0, broken=[True, False, False, False]),
        "pyautoattack": turn(3.0, broken=[True, True, False, False], flops=6e11),
        "peak": turn(1.0, **PEAK),
    }
    found = script.conclude(group, [one])
    ours, plain = found["contenders"]["fairbench"], found["contenders"]["pyautoattack"]
    assert (ours["gflops"], plain["gflops"]) == (300, 200)
    assert (ours["same_verdicts"], plain["same_verdicts"]) == (0.75, 1)
    assert found["verdicts"]["fairbench"]["reached"]


def test_each_search_counts_its_own_passes(script):
    group = script.Group("least-epsilon", dict.fromkeys(["bisect", "scan"]), "images", 4, None, {})
    one = {"bisect": turn(1.0, flops=1e11), "scan": turn(7.0, flops=7e11), "peak": turn(1.0, **PEAK)}
    found = script.conclude(group, [one])
    assert found["contenders"]["scan"]["gflops"] == 100
    assert not found["verdicts"]["bisect"]["reached"]


def test_a_file_is_gone_on_from_if_it_was_made_the_same_way(script, tmp_path):
    path, common = tmp_path / "s.json", {"options": {"images": 8}, "threads": 2}
    document = {"format": script.FORMAT, "common": common, "groups": {"pgd20": {"rounds": [{"peak": {}}]}}}
    path.write_text(json.dumps(document))
    assert script.read(path, common, fresh=False) == {"pgd20": {"rounds": [{"peak": {}}]}}
    assert script.read(path, common, fresh=True) == {}
    assert script.read(tmp_path / "none.json", common, fresh=False) == {}
    with pytest.raises(FairbenchError, match="other options, packages or hardware"):
        script.read(path, {**common, "threads": 1}, fresh=False)
    for text in ("", "[]", "{}", '{"groups": 3}'):
        path.write_text(text)
        with pytest.raises(FairbenchError, match="no result of this script"):
            script.read(path, common, fresh=False)
