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

    @classmethod
    def so_far(cls) -> "Spent":
        """Since some moment; two of them tell what lies between."""
        return cls(time.perf_counter(), time.process_time())

    def __sub__(self, earlier: "Spent") -> "Spent":
        return Spent(self.wall_s - earlier.wall_s, self.cpu_s - earlier.cpu_s)


def spent(run: Callable[..., object], *given: object) -> Spent:
    began = Spent.so_far()
    run(*given)
    return Spent.so_far() - began


@dataclass(frozen=True, slots=True)
class Pass:
    """One forward pass of plain decoding."""

    rows: int
    began: Spent
    ended: Spent


@dataclass(frozen=True, slots=True)
class Steps:
    """What a step took on average over a block, and medians of its forward pass and of what is beside that."""

    step: Spent
    forward_s: float
    beside: Spent


class Watch:
    """Times forward passes, whoever runs them. A step lasts from the beginning of one to that of the next."""

    def __init__(self) -> None:
        self._passes: list[Pass] = []

    def time(self, rows: int, run: Callable[[], T]) -> T:
        began = Spent.so_far()
        result = run()
        self._passes.append(Pass(rows, began, Spent.so_far()))
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
        whole = passes[-1].began - passes[0].began
        beside = [then.began - one.ended for one, then in itertools.pairwise(passes)]
        return Steps(
            Spent(whole.wall_s / steps, whole.cpu_s / steps),
            statistics.median((one.ended - one.began).wall_s for one in passes),
            Spent(statistics.median(gap.wall_s for gap in beside), statistics.median(gap.cpu_s for gap in beside)),
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
