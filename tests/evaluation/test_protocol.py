"""Protocols: the named ones are those of docs/definitions.md; bad values are one clear line."""

import json
from fractions import Fraction

import numpy as np
import pytest

from fairbench.errors import ProtocolError
from fairbench.evaluation.protocol import LEADERBOARD, QUICK, STANDARD, Protocol, parse_fraction


def test_the_named_protocols_are_those_of_the_agreement():
    assert (QUICK.examples, QUICK.attacks) == ("sample", ("pgd20",))
    assert (STANDARD.examples, STANDARD.attacks) == ("test", ("pgd20",))
    assert (LEADERBOARD.examples, LEADERBOARD.attacks) == ("test", ("pgd20", "autoattack"))
    for protocol in (QUICK, STANDARD, LEADERBOARD):
        pgd20 = protocol.build_attacks(10)[0].parameters()
        assert (pgd20["epsilon"], pgd20["step"], pgd20["steps"]) == (8 / 255, 2 / 255, 20)
        assert (pgd20["restarts"], pgd20["score"], pgd20["init"]) == (1, "last", "uniform")
        assert protocol.modified == {}
    autoattack = LEADERBOARD.build_attacks(10)[1].parameters()
    assert autoattack["stages"] == ["apgd-ce", "apgd-t", "fab-t", "square"]
    assert (autoattack["targets"], autoattack["queries"], autoattack["iterations"]) == (9, 5000, 100)


def test_cw_is_pgd_on_the_margin_and_differs_in_nothing_else():
    pgd7, cw7 = Protocol(attacks=("pgd7", "cw7"), restarts=2, score="any", seed=3).build_attacks(10)
    assert (pgd7.name, cw7.name) == ("pgd7", "cw7")
    assert cw7.parameters() == {**pgd7.parameters(), "loss": "cw"}


@pytest.mark.parametrize(
    ("changes", "modified"),
    [
        ({"epsilon": 8 / 255, "steps": 20, "step": 2 / 255, "seed": 0}, {}),
        ({"epsilon": 4 / 255}, {"epsilon": 4 / 255}),
        ({"step": 0.001}, {"step": 0.001}),
        ({"steps": 50}, {"attacks": ["pgd50"]}),
        ({"attacks": ("least-steps",), "step": 0.4 / 255}, {"attacks": ["least-steps"]}),
        ({"attacks": ("least-steps",), "step": 2 / 255}, {"attacks": ["least-steps"], "step": 2 / 255}),
        ({"attacks": ("least-steps",), "max_steps": 50}, {"attacks": ["least-steps"], "max_steps": 50}),
        ({"attacks": ("pgd20", "cw20", "autoattack"), "steps": 7}, {"attacks": ["pgd7", "cw7", "autoattack"]}),
        ({"restarts": 3, "score": "any", "seed": 4}, {"restarts": 3, "score": "any", "seed": 4}),
    ],
)
def test_what_differs_from_the_name_is_said(changes, modified):
    assert Protocol.named("standard", **changes).modified == modified


def test_the_step_shrinks_with_a_small_epsilon():
    assert Protocol(epsilon=4 / 255).pgd_step == pytest.approx(1 / 255)
    assert Protocol(epsilon=16 / 255).pgd_step == pytest.approx(2 / 255)
    assert Protocol(epsilon=16 / 255).small_step == pytest.approx(0.4 / 255)
    assert Protocol(epsilon=4 / 255).small_step == pytest.approx(0.2 / 255)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilon": 0.0}, "greater than 0"),
        ({"epsilon": -0.1}, "greater than 0"),
        ({"epsilon": 8.0}, "8/255"),
        ({"epsilon": float("nan")}, "greater than 0"),
        ({"epsilon": 1e-9}, "1e-06 or more"),
        (
            {"attacks": ("least-epsilon",), "max_epsilon": 9.9999999e-7, "resolution": 1e-8},
            "9.9999999e-07: .* 1e-06 or more",
        ),
        ({"step": 2.0}, "2/255"),
        ({"restarts": 0}, "restarts 0"),
        ({"max_steps": 0}, "max_steps 0"),
        ({"max_steps": 10_001}, "1 to 10,000"),
        ({"attacks": ("least-step",)}, "Did you mean 'least-steps'"),
        ({"steps": 0}, "steps 0: PGD takes 1 to 10,000 steps"),
        ({"steps": -5}, "steps -5: PGD takes 1 to 10,000 steps"),
        ({"seed": -1}, "seed -1"),
        ({"attacks": ()}, "no attack"),
        ({"attacks": ("pdg20",)}, "Did you mean 'pgd20'"),
        ({"attacks": ("autoatack",)}, "Did you mean 'autoattack'"),
        *(({"attacks": (typed,)}, "Did you mean 'pgd20'") for typed in ("pgd-20", "PGD20", "pgd_20", "Pgd-20")),
        *(({"attacks": (typed,)}, "Did you mean 'cw20'") for typed in ("cw-20", "CW20", "cw", "cw_20")),
        ({"attacks": ("cw0",)}, "attack 'cw0': PGD takes 1 to 10,000 steps, written cwN"),
        *(({"attacks": (typed,)}, "Did you mean 'autoattack'") for typed in ("aa", "AutoAttack", "apgd", "apgd-t")),
        ({"attacks": ("pgd20", "pgd20")}, "stands twice"),
        ({"epsillon": 0.1}, "Did you mean 'epsilon'"),
        ({"attacks": ("least-epsilon",), "restarts": 7}, "--restarts is for pgdN or cwN, and the attacks are least-"),
        ({"attacks": ("least-epsilon-scan",), "steps": 5}, "--steps is for pgdN or cwN"),
        ({"attacks": ("least-epsilon",), "epsilon": 0.1}, "--epsilon is for pgdN or cwN or autoattack or least-steps"),
        ({"attacks": ("autoattack",), "step": 0.1}, "--step is for pgdN or cwN or least-steps"),
        ({"max_epsilon": 0.1}, "--max-epsilon is for least-epsilon, and the attacks are pgd20; leave it out"),
        ({"max_steps": 10}, "--max-steps is for least-steps"),
    ],
)
def test_a_bad_value_is_one_clear_line(changes, message):
    with pytest.raises(ProtocolError, match=message) as caught:
        Protocol.named("quick", **changes)
    assert "\n" not in str(caught.value)


def test_an_unknown_protocol_is_suggested():
    with pytest.raises(ProtocolError, match="Did you mean 'standard'"):
        Protocol.named("standart")


@pytest.mark.parametrize(("text", "value"), [("8/255", 8 / 255), ("0.03", 0.03), (" 1 / 4 ", 0.25), ("1e-2", 0.01)])
def test_fractions_are_read(text, value):
    assert parse_fraction(text, "--epsilon") == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "8/0", "eight", "8/255/2", "0x1"])
def test_what_is_no_number_is_refused(text):
    with pytest.raises(ProtocolError, match="--epsilon"):
        parse_fraction(text, "--epsilon")


@pytest.mark.parametrize(
    ("epsilon", "step"), [(0.01, 0.0025), (8 / 255, 2 / 255), (16 / 255, 2 / 255), (20 / 255, 2.5 / 255), (0.3, 0.0375)]
)
def test_the_step_is_large_enough_to_cross_the_ball(epsilon, step):
    assert Protocol.named("standard", epsilon=epsilon).pgd_step == pytest.approx(step, rel=1e-12)
    assert 20 * step >= 2 * epsilon


@pytest.mark.parametrize("text", ["1e999999999", "1e-999999999", "9" * 5000])
def test_an_absurd_number_does_not_hang(text):
    with pytest.raises(ProtocolError):
        Protocol.named("quick", epsilon=parse_fraction(text, "--epsilon"))


@pytest.mark.parametrize("attack", ["pgd02", "pgd٢", "pgd" + "9" * 5000])
def test_a_number_of_steps_has_one_spelling(attack):
    with pytest.raises(ProtocolError):
        Protocol.named("quick", attacks=(attack,))


def test_texts_of_the_command_line_are_read_in_python_too():
    said = Protocol.named("quick", attacks="pgd10, autoattack", epsilon="4/255", step="0.5/255")
    assert (said.attacks, said.epsilon, said.step) == (("pgd10", "autoattack"), 4 / 255, 0.5 / 255)
    assert Protocol.named("sooksatra2022", protect="sex, race").protect == ("sex", "race")
    assert Protocol.named("quick", steps="10").attacks == ("pgd10",)
    assert said == Protocol.named("quick", attacks=["pgd10", "autoattack"], epsilon=4 / 255, step=0.5 / 255)
    with pytest.raises(ProtocolError, match="epsilon 'eight': give a number"):
        Protocol.named("quick", epsilon="eight")


@pytest.mark.parametrize("option", ["steps", "restarts", "seed", "max_steps"])
@pytest.mark.parametrize("value", ["ten", "1_0", "1.0", 1.0, True, "9" * 5000])
def test_a_number_that_is_not_whole_is_refused(option, value):
    with pytest.raises(ProtocolError, match=f"{option} '.*': give a whole number"):
        Protocol.named("quick", **{option: value})


@pytest.mark.parametrize("option", ["epsilon", "max_epsilon", "resolution"])
@pytest.mark.parametrize("value", [None, True, (1,)])
def test_a_radius_that_is_no_number_is_refused(option, value):
    with pytest.raises(ProtocolError, match=f"{option} .*: give a number such as 8/255"):
        Protocol(**{option: value})


def test_columns_to_protect_are_not_attacks():
    assert Protocol.named("sooksatra2022", protect=(3, "sex")).protect == ("3", "sex")


def test_a_radius_may_be_any_number():
    for epsilon in (np.float32(0.125), Fraction(1, 8), 0.125):
        protocol = Protocol(epsilon=epsilon)
        assert json.dumps(protocol.modified) == '{"epsilon": 0.125}'
