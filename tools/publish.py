"""Put a finished training run into the zoo, and keep its results.

    python tools/publish.py runs/pgd_at                                      # weights, card and history
    python tools/publish.py runs/bat_resnet18 --fp16                         # rounded to half precision: half the size
    python tools/publish.py runs/frl007 --fp16 --url https://HOST/FOLDER     # and say where its weights are downloaded
    python tools/publish.py --results pgd_at_lenet5_fashion_mnist standard   # and what it does under a protocol
    python tools/publish.py --results NAME standard --epsilon 16/255
    python tools/publish.py --results pgd_at_mlp_adult sooksatra2022 --transfer-from standard_mlp_adult
    python tools/publish.py --results NAME quick --attacks pgd20,autoattack
    python tools/publish.py --results NAME quick --attacks pgd10,least-steps,least-epsilon --max-epsilon 64/255
    python tools/publish.py --results NAME sooksatra2022 --attacks least-epsilon --max-epsilon 20 --resolution 5
    python tools/publish.py --results NAME sooksatra2022 --attacks pgd20,autoattack --protect categorical --in-range
    python tools/publish.py --results model.pt standard --dataset fashion_mnist  # a checkpoint made by others
    python tools/publish.py --results NAME standard --correction WHY             # a new version; the old one stays
    python tools/publish.py --luf runs/luf_standard                          # a leave-one-out result

An evaluation that was killed goes on where it stopped.
"""

import argparse
from pathlib import Path

ROOT = Path(__file__).parents[1]


def publish(run: Path, fp16: bool, url: str | None) -> None:
    """Copy a run's weights, card and history to ``model_zoo``, under the recipe's name.

    With ``fp16`` the rounded weights are the model: they are cast to float32 when they are loaded. Weights outside
    the package are downloaded from the folder ``url``.
    """
    from safetensors.torch import load_file

    from fairbench.errors import ModelError
    from fairbench.files import replacing
    from fairbench.models.cards import CARD_FILE, card_names, load_card, read_card
    from fairbench.models.weights import weights_path
    from fairbench.plain_yaml import dump_yaml, parse_yaml
    from fairbench.provenance import sha256_file
    from fairbench.training.recipe import recipe_names
    from fairbench.training.run_folder import HISTORY, write_weights

    card = read_card(run / CARD_FILE)
    weights = weights_path(card, run)  # checks their SHA-256
    if card.name not in recipe_names():
        raise ModelError(f"{card.name} is no recipe of the zoo: a model of the zoo is made by one, unchanged.")
    plain = parse_yaml((run / CARD_FILE).read_text(encoding="utf-8"))
    plain["licence"] = "MIT"
    plain["weights"]["file"] = f"{card.name}.safetensors"
    if url is not None:
        plain["weights"]["url"] = f"{url.rstrip('/')}/{plain['weights']['file']}"
    target = ROOT / "model_zoo" / "weights" / plain["weights"]["file"]
    if fp16:
        state = load_file(weights)
        weights = run / "model_fp16.safetensors"
        write_weights({k: v.half() if v.is_floating_point() else v for k, v in state.items()}, weights)
        plain["weights"]["sha256"] = sha256_file(weights)
        plain["provenance"] += "; weights rounded to float16"
    if card.name in card_names() and load_card(card.name).weights.sha256 != plain["weights"]["sha256"]:
        raise ModelError(f"the zoo has another {card.name}; remove its card and results first.")
    history = ROOT / "model_zoo" / "history" / f"{card.name}.csv"
    for source, copy in ((weights, target), (run / HISTORY, history)):
        copy.parent.mkdir(exist_ok=True)
        with replacing(copy) as temporary:
            temporary.write_bytes(source.read_bytes())
    with replacing(ROOT / "model_zoo" / "cards" / f"{card.name}.yaml") as temporary:
        temporary.write_text(dump_yaml(plain), encoding="utf-8")
    print(card.name)


def keep_results(name: str, protocol: str, asked: argparse.Namespace) -> None:
    """Evaluate a model and keep the result in ``leaderboard/results``."""
    from fairbench import Protocol, evaluate
    from fairbench.evaluation.inputs import load_inputs
    from fairbench.evaluation.protocol import parse_fraction
    from fairbench.leaderboard.results import write_result

    def radius(text: str | None, option: str) -> float | None:
        return None if text is None else parse_fraction(text, option)

    chosen = Protocol.named(
        protocol,
        epsilon=radius(asked.epsilon, "--epsilon"),
        max_epsilon=radius(asked.max_epsilon, "--max-epsilon"),
        resolution=radius(asked.resolution, "--resolution"),
        attacks=None if asked.attacks is None else tuple(asked.attacks.split(",")),
        protect=None if asked.protect is None else tuple(asked.protect.split(",")),
        in_range=asked.in_range or None,
    )
    where = {"dataset": asked.dataset, "data_dir": asked.data_dir}
    inputs = load_inputs(name, chosen, **where, transfer_from=asked.transfer_from)
    outcomes = evaluate(inputs.model, inputs.dataset, chosen, transfer_from=inputs.transfer_from)
    print(write_result(outcomes, correction=asked.correction).name)


def keep_luf(run: Path) -> None:
    """Copy a leave-one-out result to ``leaderboard/luf``, under the name of what was trained."""
    from fairbench.errors import OutcomesError
    from fairbench.leaderboard.luf import LUF_FILE, luf_folder, read_luf, write_luf

    _, examples, manifest = read_luf(run / LUF_FILE)
    path = luf_folder() / f"{manifest['name']}.json"
    if path.exists() and read_luf(path)[2]["run"] != manifest["run"]:
        raise OutcomesError(f"{path} is another run's result; results are never overwritten. Remove it first.")
    write_luf(path, examples, manifest)
    print(path.name)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--results", nargs=2, metavar=("MODEL", "PROTOCOL"))
    parser.add_argument("--luf", action="append", default=[], type=Path, metavar="RUN")
    parser.add_argument("--fp16", action="store_true")
    parser.add_argument("--url")
    parser.add_argument("--epsilon")
    parser.add_argument("--max-epsilon")
    parser.add_argument("--resolution")
    parser.add_argument("--attacks")
    parser.add_argument("--protect")
    parser.add_argument("--in-range", action="store_true")
    parser.add_argument("--correction", metavar="WHY")
    parser.add_argument("--dataset")
    parser.add_argument("--transfer-from")
    parser.add_argument("--data-dir")
    arguments = parser.parse_args()
    from fairbench.errors import FairbenchError

    try:
        for folder in arguments.runs:
            publish(folder, arguments.fp16, arguments.url)
        for folder in arguments.luf:
            keep_luf(folder)
        if arguments.results:
            keep_results(*arguments.results, arguments)
    except FairbenchError as error:
        parser.exit(2, f"publish: {error}\n")
