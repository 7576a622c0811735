"""Timing two ways of doing the same by turns, and printing what came out."""

import itertools
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of the clock, and of all the process's threads on a core: company on the machine costs less of these."""

    wall_s: float
    cpu_s: float


def spent(run: Callable[..., object], *given: object) -> Spent:
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    run(*given)
    return Spent(time.perf_counter() - wall_s, time.process_time() - cpu_s)


@dataclass(frozen=True, slots=True)
class Pass:
    """One forward pass of plain decoding. cpu_s: what the process had used when it began."""

    rows: int
    start_s: float
    end_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Steps:
    """What a step took on average over a block, and the medians of what was and was not its forward pass."""

    step: Spent
    forward_s: float
    beside_s: float


class Watch:
    """Times forward passes, whoever runs them. A step lasts from the beginning of one to that of the next."""

    def __init__(self) -> None:
        self._passes: list[Pass] = []

    def time(self, rows: int, run: Callable[[], T]) -> T:
        start_s, cpu_s = time.perf_counter(), time.process_time()
        result = run()
        self._passes.append(Pass(rows, start_s, time.perf_counter(), cpu_s))
        return result

    def take(self, rows: int, at_least: int) -> Steps:
        """The steps in which all `rows` of the block were decoded.

        Raises:
            RuntimeError: they are fewer than `at_least`: a row has ended early.
        """
        passes, self._passes = [one for one in self._passes if one.rows == rows], []
        steps = len(passes) - 1
        if steps < at_least:
            raise RuntimeError(f"{steps} steps had {rows} rows, expected at least {at_least}")
        first, last = passes[0], passes[-1]
        return Steps(
            Spent((last.start_s - first.start_s) / steps, (last.cpu_s - first.cpu_s) / steps),
            forward_s=statistics.median(one.end_s - one.start_s for one in passes),
            beside_s=statistics.median(then.start_s - one.end_s for one, then in itertools.pairwise(passes)),
        )


def by_turns(ways: Mapping[str, Callable[[], T]], blocks: int) -> dict[str, list[T]]:
    """Run every way once a block, each block beginning with another. What each gave, by way, in the order of blocks."""
    names = list(ways)
    came: dict[str, list[T]] = {name: [] for name in names}
    for block in range(blocks):
        turn = block % len(names)
        for name in names[turn:] + names[:turn]:
            came[name].append(ways[name]())
    return came


def ratios(these: Iterable[float], those: Iterable[float]) -> list[float]:
    """Block by block: these over those."""
    return [this / that for this, that in zip(these, those, strict=True)]


def with_spread(values: Sequence[float]) -> str:
    """The median, and the quartiles that say how far to trust it."""
    first, middle, third = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:.3f} ({first:.3f}-{third:.3f})"


def p95(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=20, method="inclusive")[-1]


def print_table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    print(f"\n{title}")
    for row in (heads, *rows):
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))
