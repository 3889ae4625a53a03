"""How fast do ``bat`` and ``pgd_at`` train? This package beside plain PyTorch loops that compute the same losses.

    python benchmarks/training_throughput.py --data-dir DIR --json benchmarks/results/training_throughput.json

ResNet-18 in float32 on CIFAR-10 images, batches of 128, crop and flip, two threads. The plain loops below are written
from descriptions, for this script: ``pgd_at`` as tutorials have it; ``bat`` with the structure of its authors' code,
which attacks each batch twice, for the last correct and for the first wrong point, with a Python loop over the samples.
All start each round from the same weights and take the same batches of images, augmented each in its own way. Before
any timing, all compute the loss of a few images from the same noise, and losses that differ end the script.

How many steps an example takes to the boundary, and so what ``bat`` costs, depends on the network: see ``--model``.
"""

import argparse
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from peers import exit_with, positive
from PIL import Image
from tabulate import tabulate
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset
from torch.utils.flop_counter import flop_registry
from torchvision import transforms
from turns import Round, Turn, Worker, peak_round, quiet_turn

from fairbench import load_dataset, load_model, provenance
from fairbench.attacks.pgd import PGDResult
from fairbench.datasets import Dataset
from fairbench.errors import DatasetError, FairbenchError
from fairbench.evaluation.speed import PEAKS
from fairbench.files import make_folder, write_json
from fairbench.memory import keep_freed_memory
from fairbench.models.architectures.resnet import ResNet18
from fairbench.training.attack_copy import AttackCopy
from fairbench.training.data import TrainingData
from fairbench.training.method import Context, Method
from fairbench.training.methods.bat import BAT
from fairbench.training.methods.pgd_at import PGDAT
from fairbench.training.network import make_optimizer
from fairbench.training.recipe import AugmentationRecipe, OptimizerRecipe

DATASET, CLASSES, FRESH = "cifar10", 10, "fresh"
OURS, PLAIN, PEAK = "fairbench", "plain", "peak"
TARGETS = {"bat": 2.5, "pgd_at": 1.3}
"""What this package promises: at least so many times the plain loop."""
CHECKED, TOLERANCE = 8, 1e-6
"""Losses are compared on so many images, and may differ relatively by so much. In float64: in float32 a confident
network's gradients are rounding errors, and an attack steps along their signs."""
SEED, CROP = 0, 4
OPTIMIZER = OptimizerRecipe(name="sgd", lr=0.01, momentum=0.9, weight_decay=2e-4)
Batches = Iterable[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Task:
    """What every contender does in a round: ``batches`` training steps with ``images`` images each."""

    model: str
    data_dir: str | None
    images: int
    batches: int
    threads: int
    variant: str
    gradient: str
    loader_workers: int
    dtype: torch.dtype = torch.float32

    def dataset(self) -> Dataset:
        """Load the training split of CIFAR-10, or the shipped sample where there is none and no folder was named."""
        try:
            return load_dataset(DATASET, "train", data_dir=self.data_dir, download=False)
        except DatasetError:
            if self.data_dir is not None:
                raise
            return load_dataset(DATASET, "sample")

    def module(self) -> nn.Module:
        """Return the network all start from."""
        if self.model == FRESH:
            torch.manual_seed(SEED)
            module: nn.Module = ResNet18(CLASSES)
        else:
            module = load_model(self.model, num_classes=CLASSES).module
        return module.to(self.dtype).requires_grad_().train()

    def bat(self) -> BAT:
        """Return the numbers of ``bat``, the same for both."""
        return StepCounting(**BAT.variants.get(self.variant, {}))


class StepCounting(BAT):
    """``bat``, keeping how many steps the examples of each attack took while classified correctly."""

    def setup(self, context: Context) -> None:
        """Get ready for a run."""
        super().setup(context)
        self.steps_right: list[float] = []

    def attack(self, model: nn.Module, x: Tensor, y: Tensor, **options: Any) -> PGDResult:
        """Attack and count."""
        found = super().attack(model, x, y, **options)
        if found.steps_right is not None:
            self.steps_right.append(float(found.steps_right.double().mean()))
        return found


class Contender(ABC):
    """One way to train by one method. The step is the same for all; batches and loss are each one's own."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.dataset = task.dataset()
        self.module = self.prepared(task.module())
        self.start = deepcopy(self.module.state_dict())
        self.optimizer = make_optimizer(self.module, OPTIMIZER)
        self.steps_right: list[float] = []
        """Mean over each batch; empty where examples do not stop."""

    def prepared(self, module: nn.Module) -> nn.Module:
        """Lay out the network in memory."""
        return module

    @abstractmethod
    def seed(self) -> None:
        """Begin all that is random anew."""

    @abstractmethod
    def batches(self) -> Batches:
        """Return the round's augmented batches."""

    @abstractmethod
    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Attack a batch and return its loss."""

    def rewind(self) -> None:
        """Go back to the start, so that each round does the same work."""
        self.module.load_state_dict(self.start)
        self.module.train()
        self.optimizer.state.clear()
        self.optimizer.zero_grad()
        self.steps_right.clear()
        self.seed()

    def train(self) -> None:
        """Do one round."""
        for x, y in self.batches():
            self.optimizer.zero_grad()
            loss = self.loss(x, y)
            if not math.isfinite(float(loss.detach())):
                raise FairbenchError("the loss is no longer finite.")
            loss.backward()
            self.optimizer.step()

    def order(self) -> Tensor:
        """Return the rows of the round's batches; this package's draw of an epoch's order, which all follow."""
        shuffled = torch.randperm(len(self.dataset), generator=torch.Generator().manual_seed(SEED))
        return shuffled[: self.task.images * self.task.batches]

    def first_loss(self) -> float:
        """Return the loss of the first images as they are, with the noise all take."""
        self.rewind()
        x, y, _ = self.dataset.batch(self.order()[: self.task.images].numpy())
        return float(self.loss(x.to(self.task.dtype), y).detach())


class Fairbench(Contender):
    """This package: what ``fit`` does with a batch on one device."""

    def __init__(self, task: Task, method: Method) -> None:
        keep_freed_memory()
        super().__init__(task)
        self.data = TrainingData.of(self.dataset, torch.device("cpu"), torch.channels_last)
        self.generator = torch.Generator()
        some, _, _ = self.dataset.batch(slice(0, 2))
        self.attacked = AttackCopy(self.module, some.to(task.dtype, memory_format=torch.channels_last))
        self.method = method
        self.method.setup(
            Context(
                num_classes=CLASSES,
                device=torch.device("cpu"),
                generator=self.generator,
                attack_copy=lambda _: self.attacked.now(),
            )
        )
        self.steps_right = getattr(method, "steps_right", [])

    def prepared(self, module: nn.Module) -> nn.Module:
        """Lay out the network with channels last."""
        return module.to(memory_format=torch.channels_last)

    def seed(self) -> None:
        """Seed the run's generator."""
        self.generator.manual_seed(SEED)

    def batches(self) -> Batches:
        """Cut batches from the bytes in memory and augment each as a whole."""
        augmentation = AugmentationRecipe(crop=CROP, flip=True)
        return islice(self.data.batches(self.task.images, augmentation, self.generator), self.task.batches)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Ask the method."""
        return self.method.loss(self.module, x, y)


class PILImages(TorchDataset):
    """Images one by one, as torchvision's datasets give them."""

    def __init__(self, dataset: Dataset) -> None:
        self.images, self.labels = dataset.inputs.transpose(0, 2, 3, 1), dataset.labels
        size = dataset.shape[1:]
        steps = [transforms.RandomCrop(size, padding=CROP), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
        self.transform = transforms.Compose(steps)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        return self.transform(Image.fromarray(np.ascontiguousarray(self.images[row]))), int(self.labels[row])


class Plain(Contender):
    """A plain PyTorch loop: channels first, items augmented one by one, the attack on the network itself."""

    noise: Tensor | None = None
    """Noise that every attack starts from; drawn anew for each where it is None."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.loader = DataLoader(
            PILImages(self.dataset), task.images, sampler=self.order().tolist(), num_workers=task.loader_workers
        )

    def seed(self) -> None:
        """Seed torch's own generator, and let the loader begin: its worker processes start off the clock."""
        torch.manual_seed(SEED)
        self._batches = iter(self.loader)

    def batches(self) -> Batches:
        """Return the loader's batches."""
        return self._batches

    def first_loss(self) -> float:
        """Do as all do, with the noise that this package draws first from its seed."""
        self.noise = self.draw((self.task.images, *self.dataset.shape), torch.Generator().manual_seed(SEED))
        return super().first_loss()

    @abstractmethod
    def draw(self, shape: tuple[int, ...], generator: torch.Generator | None = None) -> Tensor:
        """Draw noise to start an attack from."""


class PlainPGDAT(Plain):
    """PGD adversarial training as tutorials have it."""

    def draw(self, shape: tuple[int, ...], generator: torch.Generator | None = None) -> Tensor:
        """Draw uniform noise in [-1, 1)."""
        return torch.rand(shape, generator=generator) * 2 - 1

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the cross-entropy at the attack's last iterate."""
        adversarial = self.attack(x, y, PGDAT())
        self.module.train()
        self.module.zero_grad()
        return F.cross_entropy(self.module(adversarial), y)

    def attack(self, x: Tensor, y: Tensor, numbers: PGDAT) -> Tensor:
        """Return the last iterate of PGD; with ``gradient="all"`` each step computes the weights' gradients too."""
        self.module.eval()
        noise = self.draw(tuple(x.shape)) if self.noise is None else self.noise
        current = project(x + numbers.epsilon * noise, x, numbers.epsilon)
        for _ in range(numbers.steps):
            current.requires_grad_()
            loss = F.cross_entropy(self.module(current), y)
            if self.task.gradient == "all":
                self.module.zero_grad()
                loss.backward()
                gradient = found_gradient(current)
            else:
                gradient = torch.autograd.grad(loss, current)[0]
            current = project(current.detach() + numbers.step * gradient.sign(), x, numbers.epsilon)
        return current


class PlainBAT(Plain):
    """``bat`` with the structure of its authors' code: two attacks a batch, each looping over the samples."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.numbers = task.bat()

    def draw(self, shape: tuple[int, ...], generator: torch.Generator | None = None) -> Tensor:
        """Draw standard normal noise."""
        return torch.randn(shape, generator=generator)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the loss at both points, each from an attack of its own."""
        numbers = self.numbers
        right = self.attack(x, y, tau=0, last_right=True)
        wrong = self.attack(x, y, tau=numbers.slack, last_right=False)
        self.steps_right.append(right.steps_right / len(x))
        self.module.train()
        self.module.zero_grad()
        right_logits, wrong_logits = self.module(right.points), self.module(wrong.points)
        clean_logits = self.module(wrong.natural)
        divergence = F.kl_div(F.log_softmax(wrong_logits, 1), F.softmax(clean_logits, 1), reduction="batchmean")
        source = F.cross_entropy(right_logits, right.labels) + numbers.beta * divergence
        return source + numbers.alpha * (self.uniform_term(right_logits) + self.uniform_term(wrong_logits))

    def uniform_term(self, logits: Tensor) -> Tensor:
        """Return the mean KL divergence from the uniform distribution, or in the authors' code to it."""
        uniform = torch.full_like(logits, 1 / CLASSES)
        if self.numbers.reverse_uniform:
            return F.kl_div(uniform.log(), F.softmax(logits, 1), reduction="batchmean")
        return F.kl_div(F.log_softmax(logits, 1), uniform, reduction="batchmean")

    def attack(self, x: Tensor, y: Tensor, *, tau: int, last_right: bool) -> "Stopped":
        """Attack until each example is misclassified and ``tau`` steps on; one that is from the start stays ``x``."""
        numbers, model = self.numbers, self.module
        model.eval()
        with torch.no_grad():
            clean = F.softmax(model(x), 1)
        noise = self.draw(tuple(x.shape)) if self.noise is None else self.noise
        current, before, slack = project(x + 0.001 * noise, x, numbers.epsilon), x, [tau] * len(x)
        missed, found = [False] * len(x), Stopped.none(x, y)
        for k in range(numbers.steps):
            current = current.detach().requires_grad_()
            logits = model(current)
            model.zero_grad()
            F.kl_div(F.log_softmax(logits, 1), clean, reduction="sum").backward()
            predicted, gradient, going = logits.argmax(1), found_gradient(current), []
            for i in range(len(y)):
                missed[i] = missed[i] or bool(predicted[i] != y[i])
                if not missed[i]:
                    found.steps_right += 1
                    going.append(i)
                elif k > 0 and slack[i] > 0:
                    slack[i] -= 1
                    going.append(i)
                else:
                    found.add(x[i] if k == 0 else before[i] if last_right else current[i], x[i], y[i])
            if not going:
                return found
            before = current.detach()[going]
            x, y, clean = x[going], y[going], clean[going]
            missed, slack = [missed[i] for i in going], [slack[i] for i in going]
            current = project(before + numbers.step * gradient[going].sign(), x, numbers.epsilon)
        if last_right:  # the last iterate has not been looked at
            with torch.no_grad():
                predicted = model(current).argmax(1)
        for i in range(len(y)):
            found.add(before[i] if last_right and predicted[i] != y[i] else current[i], x[i], y[i])
        return found


@dataclass
class Stopped:
    """The examples that an attack is done with, in the order in which they stopped."""

    points: Tensor
    natural: Tensor
    labels: Tensor
    steps_right: int = 0

    @classmethod
    def none(cls, x: Tensor, y: Tensor) -> "Stopped":
        """Return the state in which all are still under attack."""
        return cls(x[:0], x[:0], y[:0])

    def add(self, point: Tensor, natural: Tensor, label: Tensor) -> None:
        """Append one example."""
        self.points = torch.cat((self.points, point.detach().unsqueeze(0)))
        self.natural = torch.cat((self.natural, natural.unsqueeze(0)))
        self.labels = torch.cat((self.labels, label.unsqueeze(0)))


def project(points: Tensor, x: Tensor, epsilon: float) -> Tensor:
    """Bring points back into the ball around ``x`` and into [0, 1]."""
    return torch.min(torch.max(points, x - epsilon), x + epsilon).clamp(0, 1)


def found_gradient(x: Tensor) -> Tensor:
    """Return the gradient that ``backward`` left."""
    if x.grad is None:
        raise TypeError("no gradient was computed")
    return x.grad


def contender(name: str, task: Task) -> Contender:
    """Build one by its name, "METHOD SIDE"."""
    method, side = name.split()
    if side == OURS:
        return Fairbench(task, task.bat() if method == "bat" else PGDAT())
    return PlainBAT(task) if method == "bat" else PlainPGDAT(task)


class ExecutedFlops(TorchDispatchMode):
    """Counts the floating-point operations of convolutions and matrix products, forward and backward, as they run."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        count = flop_registry.get(func.overloadpacket)
        if count is not None:
            self.total += count(*args, **(kwargs or {}), out_val=out)
        return out


def training_round(name: str, task: Task) -> Round:
    """Return a round of training. The first warms up, computes the loss to compare, and counts operations and steps.

    What it counts holds for the others, for all do the same work.
    """
    trained = contender(name, task)
    facts: dict[str, Any] = {}

    def run() -> None:
        if facts:
            trained.train()
            return
        few = replace(task, images=max(2, min(CHECKED, task.images // 4)), batches=1, dtype=torch.float64)
        facts["first_loss"] = contender(name, few).first_loss()
        trained.rewind()
        with ExecutedFlops() as executed:
            trained.train()
        facts["flops_per_image"] = executed.total / (task.images * task.batches)
        facts["steps_right"] = mean(trained.steps_right) if trained.steps_right else None

    def value(_: None) -> dict[str, Any]:
        trained.rewind()
        return facts

    return run, value


def any_round(name: str, task: Task) -> Round:
    """Prepare a contender, or the measurement of the peak."""
    torch.set_num_threads(task.threads)
    return peak_round(0.5 if task.images < CHECKED * 2 else 3.0) if name == PEAK else training_round(name, task)


def measure(task: Task, methods: list[str], rounds: int, quiet: float) -> dict[str, Any]:
    """Check that contenders agree, run the rounds, one of each in turn, and the peak; return plain data.

    A turn during which other processes took more than ``quiet`` (0..1) of the cores is done again.

    Raises
    ------
    FairbenchError
        The model or the data cannot be had, or two contenders compute different losses.
    """
    load_before, dataset = os.getloadavg()[0], task.dataset()
    task.module()  # what is wrong with it is better said here than in five processes
    if task.images * task.batches > len(dataset):
        raise FairbenchError(f"a round takes {task.images * task.batches} images, but there are {len(dataset)}.")
    names = [f"{method} {side}" for method in methods for side in (OURS, PLAIN)]
    kept: list[dict[str, Turn]] = []
    with ExitStack() as stack:
        started = []
        for name in (*names, PEAK):
            started.append(Worker(name, partial(any_round, name, task), daemon=False))  # a loader has processes too
            stack.callback(started[-1].close)
        facts = {worker.name: worker.ask().value for worker in started}  # warm-up
        agreement = {method: agree(method, facts) for method in methods}
        for number in range(rounds):
            kept.append({worker.name: quiet_turn(worker, quiet) for worker in started})
            times = ", ".join(f"{name} {turn.reply.seconds:.2f} s" for name, turn in kept[-1].items() if name != PEAK)
            print(f"round {number + 1} of {rounds}: {times}", flush=True)
    turns = [turn for found in kept for turn in found.values()]
    return {
        "dataset": f"{DATASET} {dataset.split}",
        **{key: value for key, value in asdict(task).items() if key not in ("data_dir", "dtype")},
        "rounds": rounds,
        "load_before": load_before,
        "other_processes": {
            "allowed": quiet,
            "by_turn": [turn.others for turn in turns],
            "turns_repeated": sum(turn.repeated for turn in turns),
        },
        "peak_gflops": {what: max(found[PEAK].reply.value[what] for found in kept) for what in PEAKS},
        "agreement": agreement,
        "contenders": {
            name: {"seconds": [found[name].reply.seconds for found in kept], **facts[name]} for name in names
        },
        "hardware": {**provenance.hardware(), "threads": task.threads},
        "versions": provenance.versions(),
    }


def agree(method: str, facts: dict[str, Any]) -> float:
    """Print the losses of both contenders of a method on the first images, and return their relative difference.

    Raises
    ------
    FairbenchError
        It is more than :data:`TOLERANCE`.
    """
    ours, plain = (facts[f"{method} {side}"]["first_loss"] for side in (OURS, PLAIN))
    difference = abs(ours - plain) / abs(plain)
    print(
        f"{method}: loss of the first images, same weights and noise, in float64: {ours:.9f} ({OURS}) and {plain:.9f} "
        f"({PLAIN}), relative difference {difference:.1e}",
        flush=True,
    )
    if not difference <= TOLERANCE:
        raise FairbenchError(f"{method}: the contenders compute different losses, so their speeds do not compare.")
    return difference


def conclude(result: dict[str, Any]) -> dict[str, Any]:
    """Add to each contender its rates (medians over rounds), and a verdict a method; ratios are within a round."""
    images, contenders = result["images"] * result["batches"], result["contenders"]
    result["verdict"] = {}
    for name, found in contenders.items():
        method, side = name.split()
        seconds = median(found["seconds"])
        found["images_per_second"] = images / seconds
        found["gflops"] = images * found["flops_per_image"] / seconds / 1e9
        found["share_of_peak"] = found["gflops"] / max(result["peak_gflops"].values())
        ours = contenders[f"{method} {OURS}"]
        ratios = [theirs / mine for theirs, mine in zip(found["seconds"], ours["seconds"], strict=True)]
        ratio = {"median": median(ratios), "min": min(ratios), "max": max(ratios)}
        found |= {"ours_to_it": ratio, "work_to_ours": found["flops_per_image"] / ours["flops_per_image"]}
        if side == PLAIN:
            target = TARGETS[method]
            result["verdict"][method] = {**ratio, "target": target, "reached": ratio["median"] >= target}
    return result


def render(result: dict[str, Any]) -> str:
    """Return the report: what ran where, the table, the verdicts."""
    rows = [
        (
            name,
            f"{c['images_per_second']:.2f}",
            f"{c['ours_to_it']['median']:.2f} ({c['ours_to_it']['min']:.2f} to {c['ours_to_it']['max']:.2f})",
            "-" if c["steps_right"] is None else f"{c['steps_right']:.2f}",
            f"{c['flops_per_image'] / 1e9:.1f}",
            f"{c['work_to_ours']:.2f}",
            f"{c['gflops']:.0f}",
            f"{100 * c['share_of_peak']:.0f} %",
        )
        for name, c in result["contenders"].items()
    ]
    head = ("", "images/s", "ours / it", "steps right", "GFLOP/image", "its work / ours", "GFLOP/s", "of peak")
    others, verdicts = result["other_processes"]["by_turn"], result["verdict"].items()
    return "\n".join(
        [
            f"starting from {result['model']}, {result['dataset']}, {result['batches']} batches of {result['images']} "
            f"images a round, {result['rounds']} rounds, medians; bat as {result['variant']}",
            f"{result['hardware']['processor']}, {result['threads']} threads; peak "
            + ", ".join(f"{name} {gflops:.0f} GFLOP/s" for name, gflops in result["peak_gflops"].items()),
            f"load before {result['load_before']:.2f}; other processes took {median(others):.1%} of the cores, at most "
            f"{max(others):.1%}",
            "",
            tabulate(rows, head, disable_numparse=True, colalign=("left", *["right"] * 7)),
            "",
            *(
                f"{method}: {v['median']:.2f} times the plain loop ({v['min']:.2f}..{v['max']:.2f} over rounds): "
                f"{'at least' if v['reached'] else 'less than'} {v['target']}"
                for method, v in verdicts
            ),
        ]
    )


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=list(TARGETS), default=list(TARGETS), help="which (both)")
    parser.add_argument(
        "--model",
        default="natural_resnet18",
        help=f"what all start from: a model of the zoo, a run's folder, a checkpoint, or '{FRESH}', a ResNet-18 that "
        "is freshly initialised (natural_resnet18)",
    )
    parser.add_argument(
        "--data-dir", metavar="DIR", help="folder that holds cifar10 (default $FAIRBENCH_DATA, else the shipped sample)"
    )
    parser.add_argument("--rounds", type=positive, default=3, help="alternations, 3 or more (3)")
    parser.add_argument("--batches", type=positive, default=2, help="training steps in a round (2)")
    parser.add_argument("--images", type=positive, default=128, help="images in a batch (128)")
    parser.add_argument("--threads", type=positive, default=2, help="threads of each contender (2)")
    parser.add_argument(
        "--variant",
        choices=("authors_code", "paper"),
        default="authors_code",
        help="numbers of bat, for both contenders: slack 1 and KL(f || U), or slack 0 and KL(U || f) (authors_code)",
    )
    parser.add_argument(
        "--gradient",
        choices=("input", "all"),
        default="input",
        help="what the plain loop of pgd_at differentiates by in its attack: the input alone (autograd.grad), or "
        "everything (loss.backward()) (input)",
    )
    parser.add_argument(
        "--loader-workers", type=int, default=0, metavar="N", help="processes that load for the plain loops (0)"
    )
    parser.add_argument(
        "--quiet",
        type=float,
        default=5.0,
        metavar="PERCENT",
        help="wait for, and repeat a turn until, other processes take at most that much of the cores (5)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the result")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="8 images, one batch, one round, however busy the machine; judges nothing",
    )
    options = parser.parse_args()
    if options.dry_run:
        options.images, options.batches, options.rounds, options.quiet = 8, 1, 1, 200.0
    elif options.rounds < 3:
        parser.error("--rounds: a spread needs 3 or more")
    elif not 0 <= options.quiet <= 100:
        parser.error("--quiet: a percentage is 0 to 100")
    if options.loader_workers < 0:
        parser.error("--loader-workers: 0 or more")
    return options


def main() -> int:
    """Parse, check, measure, print; 0 if the targets are reached (or in a dry run), else 1."""
    options = parse()
    task = Task(
        options.model,
        options.data_dir,
        options.images,
        options.batches,
        options.threads,
        options.variant,
        options.gradient,
        options.loader_workers,
    )
    if options.json is not None:
        make_folder(options.json.absolute().parent)
    result = conclude(measure(task, options.methods, options.rounds, options.quiet / 100))
    if options.dry_run:
        result["verdict"].clear()
    if options.json is not None:
        write_json(result, options.json)
    print("\n" + render(result))
    return 0 if all(verdict["reached"] for verdict in result["verdict"].values()) else 1


if __name__ == "__main__":
    exit_with(main)
