"""What the cards of the zoo say of a training."""

from fairbench.leaderboard.zoo_card import ATTACKS_ITS_START, trained_note
from fairbench.training.methods import METHODS


def test_a_model_that_only_met_attacks_on_another_did_not_start_from_it():
    note = trained_note(["static_augmentation_small_cnn_cifar10", "bat_resnet18"])
    assert note is not None
    assert (
        "from fresh weights, on attacks made for standard_small_cnn_cifar10 (static_augmentation_small_cnn_cifar10)"
        in note
    )
    assert "1 pass over the training images from pgd2_resnet18 (bat_resnet18)" in note


def test_the_methods_of_that_kind_are_all_known():
    assert {name for name in METHODS if not METHODS[name].trains_start} == ATTACKS_ITS_START
