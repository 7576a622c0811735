"""The gate: its settings, its decision, and what a scheduler with a clock of our own makes of it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.clock import Clock
from voice_runtime.errors import ConfigError
from voice_runtime.schedulers.gate import BatchGate
from voice_runtime.schedulers.messages import Inquire, NewRequest
from voice_runtime.schedulers.simple import OneShot, SimpleScheduler

# The scheduler really waits while it holds: a tick is short, and a sum of ticks is exact.
TICK_S = 2.0**-20
HOLD_TICKS = 6


@pytest.mark.parametrize("target", [0, -1, True, 1.5, 2.0, math.nan, "2", None])
def test_a_target_that_is_not_a_whole_number_of_at_least_one_is_refused(target: object) -> None:
    with pytest.raises(ConfigError, match=r"gate target is .*, expected a whole number of at least 1"):
        BatchGate(target=target)  # type: ignore[arg-type]


@pytest.mark.parametrize("hold", [-0.001, math.nan, math.inf, -math.inf, True, "0.006", None])
def test_a_hold_that_is_no_number_of_seconds_is_refused(hold: object) -> None:
    with pytest.raises(ConfigError, match=r"gate max_hold_s is .*, expected seconds, 0 to 60"):
        BatchGate(max_hold_s=hold)  # type: ignore[arg-type]


def test_the_default_hold_is_six_milliseconds_for_two_requests() -> None:
    assert BatchGate().hold_s(waiting=1, building=1, oldest_wait_s=0.0) == 0.006
    assert BatchGate().hold_s(waiting=2, building=1, oldest_wait_s=0.0) == 0.0


@given(
    target=st.integers(1, 8),
    hold=st.floats(0, 1),
    waiting=st.integers(0, 9),
    building=st.integers(0, 9),
    waited=st.floats(0, 2),
)
def test_a_batch_is_held_only_when_small_with_company_on_its_way_and_never_past_the_longest_hold(
    target: int, hold: float, waiting: int, building: int, waited: float
) -> None:
    left_s = BatchGate(target, hold).hold_s(waiting=waiting, building=building, oldest_wait_s=waited)
    if left_s > 0:
        assert 0 < waiting < target
        assert building > 0
    assert 0 <= left_s <= max(0, hold - waited)


@dataclass
class Bench:
    """A batching scheduler whose clock, requests on their way, and batches a test can see."""

    target: int = 2
    batch_ticks: int = 0
    clock: Clock = field(default_factory=Clock)
    building: int = 0
    batches: list[list[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        gate = BatchGate(self.target, HOLD_TICKS * TICK_S)
        work: OneShot[str, str] = OneShot(lambda one: self._run([one])[0], self._run, gate, lambda: self.building)
        self.scheduler = SimpleScheduler(work, clock=self.clock)

    def _run(self, batch: Sequence[str]) -> list[str]:
        self.batches.append(list(batch))
        self.clock.now_s += self.batch_ticks * TICK_S
        return list(batch)

    def arrive(self, *names: str) -> None:
        for name in names:
            self.scheduler.inbox.put(NewRequest(name, name))

    def step_at(self, tick: int) -> list[list[str]]:
        """The batches that have run once the scheduler has looked at `tick`."""
        self.clock.now_s = tick * TICK_S
        self.scheduler.inbox.put(Inquire("look"))  # so that a step with nothing to do does not wait
        self.scheduler.step()
        return self.batches


def test_a_lone_request_runs_at_once() -> None:
    bench = Bench()
    bench.arrive("a")
    assert bench.step_at(0) == [["a"]]


def test_a_request_waits_for_one_that_is_being_built_and_runs_with_it() -> None:
    bench = Bench(building=1)
    bench.arrive("a")
    assert bench.step_at(0) == []
    bench.arrive("b")
    assert bench.step_at(1) == [["a", "b"]]


def test_a_request_runs_alone_when_its_company_is_late() -> None:
    bench = Bench(building=1)
    bench.arrive("a")
    assert bench.step_at(HOLD_TICKS - 1) == []
    assert bench.step_at(HOLD_TICKS) == [["a"]]


def test_a_request_runs_as_soon_as_nobody_is_being_built_any_more() -> None:
    bench = Bench(building=1)
    bench.arrive("a")
    assert bench.step_at(1) == []
    bench.building = 0
    assert bench.step_at(2) == [["a"]]


def test_a_full_batch_runs_at_once_and_is_no_larger_than_the_target() -> None:
    bench = Bench(target=3, building=9)
    bench.arrive("a", "b", "c", "d")
    assert bench.step_at(0) == [["a", "b", "c"]]


def test_a_newcomer_has_its_own_hold_and_not_that_of_the_one_before() -> None:
    bench = Bench(building=1)
    bench.arrive("a")
    assert bench.step_at(HOLD_TICKS) == [["a"]]
    bench.arrive("b")
    assert bench.step_at(2 * HOLD_TICKS - 1) == [["a"]]
    assert bench.step_at(2 * HOLD_TICKS) == [["a"], ["b"]]


def test_a_newcomer_does_not_lengthen_the_hold_of_the_one_before() -> None:
    bench = Bench(target=3, building=1)
    bench.arrive("a")
    assert bench.step_at(HOLD_TICKS - 1) == []
    bench.arrive("b")
    assert bench.step_at(HOLD_TICKS) == [["a", "b"]]


def test_what_is_left_of_an_expired_wave_does_not_wait_again() -> None:
    bench = Bench(building=1, batch_ticks=100)
    bench.arrive("a", "b", "c")
    assert bench.step_at(0) == [["a", "b"]]
    assert bench.step_at(100) == [["a", "b"], ["c"]]


def test_a_request_that_came_while_a_long_batch_ran_does_not_wait_again() -> None:
    bench = Bench(building=1)
    bench.arrive("a")
    bench.clock.now_s = 100 * TICK_S
    assert bench.step_at(100) == [["a"]]


def test_one_that_is_aborted_while_it_is_held_never_runs_and_ends_its_hold() -> None:
    bench = Bench(building=1)
    bench.arrive("a")
    bench.step_at(0)
    bench.scheduler.abort("a")
    bench.arrive("b")
    assert bench.step_at(3) == []
    bench.arrive("c")
    assert bench.step_at(4) == [["b", "c"]]


def test_work_without_a_batch_function_is_never_held() -> None:
    work: OneShot[str, str] = OneShot(str.upper, building=lambda: 1)
    scheduler = SimpleScheduler(work, clock=Clock())
    scheduler.inbox.put(NewRequest("a", "x"))
    scheduler.step()
    assert len(scheduler.outbox) == 1


@given(
    target=st.integers(1, 4),
    ticks=st.lists(
        st.tuples(st.sampled_from([0, 0, 0, 0, 1, 2]), st.sampled_from([0, 1, 1, 1, 1, 1])), min_size=1, max_size=30
    ),
)
def test_no_request_waits_longer_than_the_hold_from_its_own_arrival(target: int, ticks: list[tuple[int, int]]) -> None:
    bench = Bench(target)
    arrived: dict[str, int] = {}
    ran: set[str] = set()
    for tick, (arrivals, building) in enumerate(ticks):
        bench.clock.now_s = tick * TICK_S
        bench.building = building
        names = [f"{tick}-{number}" for number in range(arrivals)]
        arrived |= dict.fromkeys(names, tick)
        bench.arrive(*names)
        for _ in range(len(arrived)):  # a step runs one batch
            bench.step_at(tick)
        ran = {name for batch in bench.batches for name in batch}
        waiting = arrived.keys() - ran
        assert all(tick - arrived[name] < HOLD_TICKS for name in waiting)
        assert not waiting or (building > 0 and len(waiting) < target)
    assert all(len(batch) <= target for batch in bench.batches)
    assert [name for batch in bench.batches for name in batch] == [name for name in arrived if name in ran]
