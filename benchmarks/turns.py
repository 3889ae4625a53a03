"""Turns: each contender prepares once, in a process of its own, and is asked again and again, one after the other.

Processes are apart because fairbench sets its process's allocator, which must neither help nor harm the others. A turn
that other work disturbed is done again. What the scripts beside this one compare, they compare by this.
"""

import multiprocessing
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from fairbench.errors import FairbenchError
from fairbench.evaluation import speed


@dataclass(frozen=True)
class Reply:
    """One round: its seconds, the processor seconds of all that was asked, and what was found (percent, or GFLOP/s)."""

    seconds: float
    cpu_seconds: float
    value: Any


Round = tuple[Callable[[], Any], Callable[[Any], Any]]
"""What is timed, and what turns its result into :attr:`Reply.value` off the clock."""


def peak_round(seconds: float = 3.0, precisions: tuple[str, ...] = ("float32",)) -> Round:
    """Return the measurement of the machine's peak in GFLOP/s: kinds of work for float32 alone, else by precision."""

    def measure() -> dict[str, Any]:
        found = {
            name: {kind: rate / 1e9 for kind, rate in speed.peak(getattr(torch, name), budget=seconds).items()}
            for name in precisions
        }
        return found if len(precisions) > 1 else found[precisions[0]]

    return measure, lambda found: found


class Worker:
    """A process that prepares once, by calling ``prepare`` there, and then does a round whenever it is asked."""

    def __init__(self, name: str, prepare: Callable[[], Round], *, daemon: bool = True) -> None:
        self.name = name
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(prepare, theirs), daemon=daemon)
        self._process.start()
        theirs.close()

    def ask(self) -> Reply:
        """Have one round done.

        Raises
        ------
        FairbenchError
            It failed there.
        """
        try:
            with suppress(OSError):  # it ended before it was asked: what it said is still there to be read
                self._connection.send(True)
            reply = self._connection.recv()
        except (EOFError, OSError):
            raise FairbenchError(
                f"the process of {self.name} died without a word: killed, or out of memory (pass a smaller --images)."
            ) from None
        if isinstance(reply, str):
            raise FairbenchError(f"{self.name}: {reply}")
        return reply

    def close(self) -> None:
        """Let the process end."""
        self._connection.close()
        self._process.join()


def _serve(prepare: Callable[[], Round], connection: Connection) -> None:
    try:
        run, value = prepare()
        while connection.recv():
            start, cpu = time.perf_counter(), time.process_time()
            found = run()
            seconds, found = time.perf_counter() - start, value(found)
            connection.send(Reply(seconds, time.process_time() - cpu, found))
    except EOFError:  # closed: done
        return
    except Exception as error:
        with suppress(OSError):  # nobody is there any more
            connection.send(f"{type(error).__name__}: {error}")


class OtherProcesses:
    """What share of the cores *other* processes take; zero where there is no /proc to tell."""

    def __init__(self) -> None:
        self._cores = os.cpu_count() or 1

    def during(self, work: Callable[[], Reply]) -> tuple[Reply, float]:
        """Have a worker do something and return its reply and what others took meanwhile, 0..1."""
        before, start = _busy_seconds(), time.perf_counter()
        reply = work()
        spent, wall = _busy_seconds() - before - reply.cpu_seconds, time.perf_counter() - start
        return reply, max(0.0, spent) / (wall * self._cores)

    def wait_until_below(self, share: float, patience: float) -> None:
        """Sleep until others take less than a share of the cores.

        Raises
        ------
        FairbenchError
            That did not happen in ``patience`` seconds.
        """
        end = time.monotonic() + patience
        while self.during(_nap)[1] > share:
            if time.monotonic() > end:
                raise FairbenchError(f"other processes kept the machine busy for {patience:.0f} s; try --quiet 100.")


def _nap() -> Reply:
    time.sleep(3)
    return Reply(3, 0, None)


def _busy_seconds() -> float:
    """Return the processor seconds the whole machine has spent since it started, those stolen by its host included."""
    try:
        fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    except OSError:
        return 0.0
    user, nice, system, _, _, irq, softirq, steal = map(int, fields[:8])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Turn:
    """A worker's reply, what others took of the cores meanwhile (0..1), and how many replies before it were dropped."""

    reply: Reply
    others: float
    repeated: int


def quiet_turn(worker: Worker, quiet: float) -> Turn:
    """Ask a worker, again and again, until other processes left the machine to it."""
    watch = OtherProcesses()
    repeated = 0
    while True:
        if quiet < 1:
            watch.wait_until_below(quiet, patience=3600)
        reply, others = watch.during(worker.ask)
        if others <= quiet:
            return Turn(reply, others, repeated)
        print(f"  {worker.name}: {reply.seconds:.2f} s, but others took {others:.1%} of the cores; again", flush=True)
        repeated += 1
