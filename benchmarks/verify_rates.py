"""How often honest runs disagree about a row: what `fairbench leaderboard verify` takes for chance.

Models of the zoo are attacked again under `standard`, their test images in another order and so in other batches: once
with the seed of the kept result, once with another.

    python benchmarks/verify_rates.py --data-dir DIR --json benchmarks/results/verify_rates.json MODEL...
"""

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np

from fairbench import evaluate, load_dataset, load_model
from fairbench.evaluation import Protocol
from fairbench.leaderboard.results import read_result

OTHER_SEED = 12_345


def compare(name: str, data_dir: str | None, device: str | None) -> dict[str, int]:
    """Return the number of rows about which the runs of a model disagree, by what differed between them."""
    kept = read_result(f"{name}.standard").frame
    model = load_model(name)
    data = load_dataset(model.dataset, "test", data_dir=data_dir, resize=model.input_size)
    shuffled = data.subset(np.random.default_rng(1).permutation(len(data)))
    with tempfile.TemporaryDirectory() as runs:
        same, other = (
            evaluate(model, shuffled, Protocol.named("standard", seed=seed), runs=runs, device=device).frame
            for seed in (0, OTHER_SEED)
        )
    broken = [(f["pgd20_pred"] != f["label"]).to_numpy(dtype=bool) for f in (kept, same, other)]
    return {
        "rows": len(kept),
        "clean_differ": int((kept["clean_pred"] != same["clean_pred"]).sum()),
        "same_seed_robust_then_broken": int((~broken[0] & broken[1]).sum()),
        "same_seed_broken_then_robust": int((broken[0] & ~broken[1]).sum()),
        "other_seed_robust_then_broken": int((~broken[0] & broken[2]).sum()),
        "other_seed_broken_then_robust": int((broken[0] & ~broken[2]).sum()),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--data-dir")
    parser.add_argument("--device")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found = {name: compare(name, arguments.data_dir, arguments.device) for name in arguments.models}
    text = json.dumps(found, indent=2)
    print(text)
    if arguments.json:
        arguments.json.write_text(text + "\n", encoding="utf-8")
