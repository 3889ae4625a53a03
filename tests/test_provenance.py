"""What is written down of the machine that computed a number."""

import pytest
import torch

from fairbench import provenance


@pytest.mark.parametrize("bf16", [True, False])
def test_processors_of_one_name_are_told_apart_by_their_instructions(bf16, monkeypatch):
    monkeypatch.setattr(provenance, "computes_in_bfloat16", lambda _device: bf16)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    assert provenance.hardware()["instructions"] == ("AVX2, bf16" if bf16 else "AVX2")


@pytest.mark.parametrize("known", ["_is_avx512_bf16_supported", "_is_amx_tile_supported"])
def test_either_instruction_set_computes_in_bf16(known, monkeypatch):
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported", "_is_arm_bf16_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda name=name: name == known, raising=False)
    assert provenance.computes_in_bfloat16("cpu")
    monkeypatch.setattr(torch.cpu, known, lambda: False)
    assert not provenance.computes_in_bfloat16("cpu")


def test_a_batch_that_did_not_record_a_part_is_not_given_another_ones():
    old = {"device": "cpu", "processor": "EPYC", "threads": 2}
    gpu = old | {"device": "cuda", "instructions": "AVX2", "gpu": "H100"}
    found = provenance.machines([old, old, old, gpu])
    assert found["instructions"] == "not recorded (3 batches); AVX2 (1 batch)"
    assert found["gpu"] == "H100", "a processor has none to record"
