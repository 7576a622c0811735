"""A caller on a bad network: real peers, real packets, a relay between them that loses some. Nothing here asks how long
a thing took: what is stated is which packets came out, in which order, and how many later ones had come by then."""

import asyncio
import itertools
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from tests.support.lossy import Network, Relay
from tests.support.lossy_call import Given, frames, lossy_call, on_loopback
from tests.support.speech import Samples, synthesise, with_silence, word_error_rate
from voice_runtime.assets import locate
from voice_runtime.audio.jitter import Counts, Lost, Voice
from voice_runtime.audio.opus import FRAME_MS
from voice_runtime.models.moonshine import Moonshine

TEXT = "How many months are there in a year, and what do we call the last of them?"
GOOD = 25  # packets at the end: the network is good again, and the last one comes
MIDDLE = 60
OUTAGE = 50  # packets, 1 s


@dataclass(frozen=True, slots=True, repr=False)  # asyncio.run has its result's repr made: a minute, for so much
class Came:
    """states: of the two peers at the end. lost: by the network, of the packets sent."""

    sent: int
    lost: int
    given: list[Given]
    counts: Counts
    states: tuple[str, str]

    @property
    def voices(self) -> list[Given]:
        return [given for given in self.given if given.number is not None]

    @property
    def numbers(self) -> list[int]:
        return [given.number for given in self.given if given.number is not None]

    @property
    def sound(self) -> Samples:
        return np.concatenate([given.samples for given in self.given])

    def filled_ms(self) -> dict[tuple[int, int], float]:
        """What was filled in between two packets of which the second is not the next, by their numbers."""
        gaps, last, filled = {}, 0, 0.0
        for given in self.given:
            if isinstance(given.piece, Lost):
                filled += given.piece.ms
            elif given.number is not None:
                if given.number > last + 1:
                    gaps[last, given.number] = filled
                last, filled = given.number, 0.0
        return gaps


async def call(packets: list[bytes], happens: Callable[[int, Relay], None]) -> Came:
    async with lossy_call(packets, 5, happens, lambda _: None) as line:
        await line.listener.listen()
        states = (line.client.connectionState, line.server.connectionState)
        return Came(len(packets), line.relay.lost, line.listener.given, line.listener.counts, states)


def while_bad(network: Network, count: int) -> Callable[[int, Relay], None]:
    def happens(number: int, relay: Relay) -> None:
        relay.network = network if number < count - GOOD else Network()

    return happens


def in_the_middle(event: Callable[[Relay], None]) -> Callable[[int, Relay], None]:
    def happens(number: int, relay: Relay) -> None:
        if number == MIDDLE:
            event(relay)

    return happens


async def all_calls(packets: list[bytes]) -> tuple[Came, ...]:
    """At the same time: they last as long as their sound."""
    hole = [*packets[:MIDDLE], b"", *packets[MIDDLE + 1 :]]
    return await asyncio.gather(
        call(packets, while_bad(Network(loss=0.05), len(packets))),
        call(packets, while_bad(Network(jitter_s=0.03, repeated=0.2), len(packets))),
        call(packets, in_the_middle(lambda relay: relay.drop_all(1.0))),
        call(hole, lambda number, relay: None),
    )


@pytest.fixture(scope="module")
def calls() -> Iterator[tuple[Came, ...]]:
    packets = frames(with_silence(synthesise(TEXT, "flite"), 0.2, 0.5))
    with on_loopback():
        yield asyncio.run(all_calls(packets))


@pytest.fixture
def lossy(calls: tuple[Came, ...]) -> Came:
    return calls[0]


@pytest.fixture
def jittery(calls: tuple[Came, ...]) -> Came:
    return calls[1]


@pytest.fixture
def interrupted(calls: tuple[Came, ...]) -> Came:
    return calls[2]


@pytest.fixture
def with_a_hole(calls: tuple[Came, ...]) -> Came:
    return calls[3]


def expect_each_once_in_order(came: Came) -> None:
    assert all(one < then for one, then in itertools.pairwise(came.numbers))
    # What came and was not given out came too late or again: nothing is left in the buffer.
    counts = came.counts
    assert len(came.voices) == counts.received - counts.late - counts.repeated
    assert counts.strange == 0


def test_the_words_come_through_a_loss_of_five_percent(lossy: Came) -> None:
    moonshine = Moonshine(*(locate(f"moonshine-{part}") for part in ("encoder", "decoder", "tokenizer")))
    assert 3 <= lossy.lost <= 0.1 * lossy.sent
    assert word_error_rate(TEXT, moonshine.transcribe([lossy.sound])[0].text) <= 0.15


def test_what_comes_of_a_lossy_stream_is_given_out_once_and_in_order(lossy: Came) -> None:
    assert lossy.counts.received == lossy.sent - lossy.lost
    expect_each_once_in_order(lossy)


def test_every_gap_is_filled(lossy: Came) -> None:
    gaps = lossy.filled_ms()
    assert gaps
    assert [gap for gap, ms in gaps.items() if ms < (gap[1] - gap[0] - 1) * FRAME_MS] == []


def test_a_loss_leaves_no_delay_behind(lossy: Came) -> None:
    assert statistics.median(voice.behind for voice in lossy.voices) == 0
    assert lossy.voices[-1].behind == 0


def test_packets_that_overtake_others_or_come_twice_are_given_out_once_and_in_order(jittery: Came) -> None:
    assert jittery.counts.received == jittery.sent  # SRTP lets no packet in twice
    expect_each_once_in_order(jittery)
    assert any(voice.behind for voice in jittery.voices)  # some did wait for one that came later


def test_a_connection_survives_an_outage_and_is_not_behind_after_it(interrupted: Came) -> None:
    assert interrupted.states == ("connected", "connected")
    assert interrupted.lost >= OUTAGE - 5
    expect_each_once_in_order(interrupted)
    (first, last), filled_ms = max(interrupted.filled_ms().items(), key=lambda gap: gap[0][1] - gap[0][0])
    assert filled_ms >= (last - first - 1) * FRAME_MS >= (OUTAGE - 5) * FRAME_MS
    assert statistics.median(voice.behind for voice in interrupted.voices if (voice.number or 0) >= last) == 0


def test_a_packet_without_sound_is_filled_in_and_those_after_it_are_heard(with_a_hole: Came) -> None:
    assert with_a_hole.lost == 0
    numbers = with_a_hole.numbers
    assert MIDDLE not in numbers
    assert {MIDDLE + 1, with_a_hole.sent - 1} <= set(numbers)
    assert with_a_hole.filled_ms()[MIDDLE - 1, MIDDLE + 1] >= FRAME_MS
    assert all(isinstance(voice.piece, Voice) and voice.samples.size for voice in with_a_hole.voices)
