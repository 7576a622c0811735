"""Code2WavScheduler: streamed equals offline whatever the cuts and the company; nothing is left of a reply."""

import re
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from tests.support.held import container_sizes
from tests.support.tiny_vocoder import BOOKS, CODES, DELAY, FRAME, State, TinyVocoder, offline
from voice_runtime.errors import ConfigError
from voice_runtime.schedulers.code2wav import Code2WavScheduler, Code2WavSettings, Codes, Rows, Samples
from voice_runtime.schedulers.messages import (
    Aborted,
    Chunk,
    Failed,
    Finished,
    Inbound,
    Inquire,
    Ledger,
    NewRequest,
    Outbound,
    Reject,
    StreamChunk,
    StreamDone,
)

Sound = tuple[int, Samples]
Scheduler = Code2WavScheduler[Any, Sound]
IDLE = {"inbox_messages": 0, "live_requests": 0, "vocoder_slots": 0, "vocoder_frames": 0}


class Counting(TinyVocoder):
    """Keeps how many rows and frames each decode had."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int]] = []

    def decode(self, state: State, codes: NDArray[np.int64], mask: Rows) -> Samples:
        self.batches.append((int(mask.sum()), codes.shape[1]))
        return super().decode(state, codes, mask)


class Plain:
    """Codes as they are; where each sound begins goes with it."""

    def codes(self, item: Codes) -> Codes:
        return item

    def sound(self, samples: Samples, start: int) -> Sound:
        return start, samples


def open_reply(payload: str) -> Plain:
    if payload == "fail":
        raise ValueError("told to fail")
    return Plain()


def build(vocoder: TinyVocoder | None = None, **settings: Any) -> Scheduler:
    return Code2WavScheduler(vocoder or TinyVocoder(), open_reply, Code2WavSettings(**settings))


def random_codes(seed: int, frames: int) -> Codes:
    return np.random.default_rng(seed).integers(0, CODES, (frames, BOOKS))


def drain(scheduler: Scheduler) -> list[Outbound[Sound]]:
    """Step until nothing is left to do; what came out. The scheduler's own thread is not needed."""
    came: list[Outbound[Sound]] = []
    while True:
        scheduler.inbox.put(Inquire("ledger"))  # so that a step never blocks
        scheduler.step()
        while len(scheduler.outbox):
            message = scheduler.outbox.take(0)
            assert message is not None
            came.append(message)
        if not scheduler._ready():
            return [message for message in came if not isinstance(message, Ledger)]


def held(scheduler: Scheduler) -> dict[str, int]:
    scheduler.inbox.put(Inquire("ledger"))
    scheduler.step()
    message = scheduler.outbox.take(0)
    assert isinstance(message, Ledger)
    return dict(message.held)


def sound_of(came: Sequence[Outbound[Sound]], request_id: str) -> Samples:
    """The reply's sound; fails when its pieces do not join."""
    pieces = [message.item for message in came if isinstance(message, Chunk) and message.request_id == request_id]
    at = 0
    for start, samples in pieces:
        assert start == at, "a piece does not begin where the one before it ended"
        at += len(samples)
    return np.concatenate([samples for _, samples in pieces]) if pieces else np.zeros(0, np.float32)


def cut(codes: Codes, cuts: Iterable[int]) -> list[Codes]:
    return np.split(codes, sorted({at for at in cuts if at < len(codes)}))


_cuts = st.lists(st.integers(0, 30), max_size=6)
_replies = st.lists(st.tuples(st.integers(0, 30), _cuts), min_size=1, max_size=6)


@given(
    replies=_replies, ramp=st.lists(st.integers(1, 7), min_size=1, max_size=4), order=st.randoms(use_true_random=False)
)
def test_streamed_equals_offline_for_every_cut_and_any_company(
    replies: list[tuple[int, list[int]]], ramp: list[int], order: Any
) -> None:
    scheduler = build(slots=6, ramp=tuple(ramp))
    codes = {f"{at}": random_codes(at, frames) for at, (frames, _) in enumerate(replies)}
    queues: dict[str, list[Inbound[Any]]] = {}
    for at, (_, cuts) in enumerate(replies):
        chunks = [StreamChunk(f"{at}", piece) for piece in cut(codes[f"{at}"], cuts)]
        queues[f"{at}"] = [NewRequest(f"{at}", "reply"), *chunks, StreamDone(f"{at}")]
    came: list[Outbound[Sound]] = []
    while queues:
        request_id = order.choice(sorted(queues))
        scheduler.inbox.put(queues[request_id].pop(0))
        if not queues[request_id]:
            del queues[request_id]
        if order.random() < 0.5:
            came += drain(scheduler)
    came += drain(scheduler)
    for request_id, expected in codes.items():
        found = sound_of(came, request_id)
        assert len(found) == len(expected) * FRAME
        assert_allclose(found, offline(expected), atol=1e-6)
        assert isinstance([m for m in came if m.request_id == request_id][-1], Finished)
    assert held(scheduler) == IDLE


def test_chunks_may_come_before_the_payload_and_done_too() -> None:
    scheduler = build()
    codes = random_codes(1, 9)
    scheduler.inbox.expect("a")
    for piece in cut(codes, [2, 5]):
        scheduler.inbox.put(StreamChunk("a", piece))
    scheduler.inbox.put(StreamDone("a"))
    assert drain(scheduler) == []
    scheduler.inbox.fulfil(NewRequest("a", "reply"))
    came = drain(scheduler)
    assert_allclose(sound_of(came, "a"), offline(codes), atol=1e-6)
    assert isinstance(came[-1], Finished)


def test_a_payload_that_cannot_be_made_fails_the_request_and_drops_what_came_early() -> None:
    scheduler = build()
    scheduler.inbox.expect("a")
    scheduler.inbox.put(StreamChunk("a", random_codes(1, 3)))
    scheduler.inbox.fulfil(Reject("a", "no payload"))
    assert drain(scheduler) == [Failed("a", "no payload")]
    assert held(scheduler) == IDLE


def test_what_is_ready_together_is_decoded_in_one_batch() -> None:
    vocoder = Counting()
    scheduler = build(vocoder, ramp=(4,))
    for request_id in "abc":
        scheduler.inbox.put(NewRequest(request_id, "reply"))
        scheduler.inbox.put(StreamChunk(request_id, random_codes(1, 4)))
    drain(scheduler)
    assert vocoder.batches == [(3, 4)]


def test_the_first_sound_takes_one_frame_and_later_ones_more() -> None:
    vocoder = Counting()
    scheduler = build(vocoder, ramp=(1, 2, 4))
    scheduler.inbox.put(NewRequest("a", "reply"))
    for frame in random_codes(1, 15):
        scheduler.inbox.put(StreamChunk("a", frame[None]))
        drain(scheduler)
    assert vocoder.batches == [(1, 1), (1, 2), (1, 4), (1, 4), (1, 4)]


def test_a_row_that_takes_more_frames_keeps_its_pace_beside_one_that_begins() -> None:
    vocoder = Counting()
    scheduler = build(vocoder, ramp=(1, 8))
    scheduler.inbox.put(NewRequest("a", "reply"))
    scheduler.inbox.put(StreamChunk("a", random_codes(1, 9)))
    scheduler.inbox.put(NewRequest("b", "reply"))
    scheduler.inbox.put(StreamChunk("b", random_codes(2, 2)))
    came = drain(scheduler)
    assert vocoder.batches == [(2, 1), (1, 8)]
    assert len(sound_of(came, "a")) == 9 * FRAME - DELAY


def test_rows_without_data_do_not_advance() -> None:
    """Two replies; one gets all its codes while the other waits in the middle, and then goes on as if alone."""
    scheduler = build(ramp=(2,))
    first, second = random_codes(1, 6), random_codes(2, 20)
    for request_id in "ab":
        scheduler.inbox.put(NewRequest(request_id, "reply"))
    scheduler.inbox.put(StreamChunk("a", first[:2]))
    came = drain(scheduler)
    scheduler.inbox.put(StreamChunk("b", second))
    came += drain(scheduler)
    scheduler.inbox.put(StreamChunk("a", first[2:]))
    scheduler.inbox.put(StreamDone("a"))
    scheduler.inbox.put(StreamDone("b"))
    came += drain(scheduler)
    assert_allclose(sound_of(came, "a"), offline(first), atol=1e-6)
    assert_allclose(sound_of(came, "b"), offline(second), atol=1e-6)


def test_a_new_reply_in_a_slot_that_was_aborted_begins_from_zero() -> None:
    scheduler = build(slots=1, ramp=(1,))
    for number in range(3):
        scheduler.inbox.put(NewRequest(f"{number}", "reply"))
        scheduler.inbox.put(StreamChunk(f"{number}", random_codes(7 + number, 5)))
        drain(scheduler)
        scheduler.abort(f"{number}")
        assert drain(scheduler) == [Aborted(f"{number}")]
        assert held(scheduler) == IDLE
    codes = random_codes(1, 6)
    for message in (NewRequest("new", "reply"), StreamChunk("new", codes), StreamDone("new")):
        scheduler.inbox.put(message)
    assert_allclose(sound_of(drain(scheduler), "new"), offline(codes), atol=1e-6)


def test_a_reply_more_than_there_are_slots_is_refused_with_the_numbers() -> None:
    scheduler = build(slots=2)
    for request_id in "abc":
        scheduler.inbox.put(NewRequest(request_id, "reply"))
    assert drain(scheduler) == [Failed("c", "RequestError: 2 replies are being spoken, limit 2")]
    scheduler.abort("a")
    scheduler.inbox.put(NewRequest("d", "reply"))
    assert drain(scheduler) == [Aborted("a")]


@pytest.mark.parametrize(
    ("item", "error"),
    [
        (np.zeros((2, BOOKS + 1), np.int64), r"codes have shape \(2, 3\), expected \(frames, 2\)"),
        (np.full((2, BOOKS), CODES), "codes go from 20 to 20, expected 0 to 19"),
        (np.full((2, BOOKS), 1.5), "codes are float64, expected whole numbers"),
        (np.full((2, BOOKS), -1), "codes go from -1 to -1, expected 0 to 19"),
        (random_codes(1, 101), "101 frames wait to be decoded, limit 100"),
    ],
)
def test_codes_that_cannot_be_decoded_fail_their_request_alone(item: Codes, error: str) -> None:
    scheduler = build(most_frames=100)
    codes = random_codes(1, 5)
    for message in (NewRequest("good", "reply"), NewRequest("bad", "reply"), StreamChunk("good", codes)):
        scheduler.inbox.put(message)
    scheduler.inbox.put(StreamChunk("bad", item))
    scheduler.inbox.put(StreamDone("good"))
    came = drain(scheduler)
    [failed] = [message for message in came if isinstance(message, Failed)]
    assert failed.request_id == "bad"
    assert re.search(error, failed.error)
    assert_allclose(sound_of(came, "good"), offline(codes), atol=1e-6)
    assert held(scheduler) == IDLE


class Tripping(TinyVocoder):
    """Cannot decode a batch that holds the code 13 in its first book."""

    def decode(self, state: State, codes: NDArray[np.int64], mask: Rows) -> Samples:
        if (codes[mask][:, :, 0] == 13).any():
            raise ArithmeticError("13")
        return super().decode(state, codes, mask)


def test_a_batch_that_cannot_be_decoded_fails_its_requests_and_nothing_else() -> None:
    scheduler = build(Tripping(), ramp=(2,))
    codes = random_codes(1, 6) % 13
    for message in (NewRequest("good", "reply"), StreamChunk("good", codes[:3])):
        scheduler.inbox.put(message)
    came = drain(scheduler)
    for message in (NewRequest("bad", "reply"), StreamChunk("bad", np.full((2, BOOKS), 13))):
        scheduler.inbox.put(message)
    came += drain(scheduler)
    scheduler.inbox.put(StreamChunk("good", codes[3:]))
    scheduler.inbox.put(StreamDone("good"))
    came += drain(scheduler)
    assert Failed("bad", "ArithmeticError: 13") in came
    assert_allclose(sound_of(came, "good"), offline(codes), atol=1e-6)
    assert held(scheduler) == IDLE


class Faltering(Plain):
    """Cannot make anything of its `at`-th sound."""

    def __init__(self, at: int) -> None:
        self._left = at

    def sound(self, samples: Samples, start: int) -> Sound:
        self._left -= 1
        if self._left == 0:
            raise ArithmeticError("no sound")
        return super().sound(samples, start)


@pytest.mark.parametrize("at", [1, 2, 3])  # 3: the flush's
def test_a_sound_that_cannot_be_wrapped_fails_its_reply_once_and_alone(at: int) -> None:
    scheduler: Scheduler = Code2WavScheduler(
        TinyVocoder(), lambda payload: Faltering(at) if payload == "bad" else Plain(), Code2WavSettings(ramp=(2,))
    )
    codes = random_codes(1, 4)
    for request_id in ("bad", "good"):
        for message in (NewRequest(request_id, request_id), StreamChunk(request_id, codes), StreamDone(request_id)):
            scheduler.inbox.put(message)
    came = drain(scheduler)
    assert [m for m in came if m.request_id == "bad" and not isinstance(m, Chunk)] == [
        Failed("bad", "ArithmeticError: no sound")
    ]
    assert_allclose(sound_of(came, "good"), offline(codes), atol=1e-6)
    assert held(scheduler) == IDLE


class BadReset(TinyVocoder):
    def reset(self, state: State, mask: Rows) -> None:
        raise ArithmeticError("reset")


def test_a_reset_that_raises_ends_the_scheduler_with_an_end_for_everybody() -> None:
    """Its rows cannot be trusted any more: the worker starts anew."""
    scheduler = build(BadReset())
    scheduler.start()
    for request_id in "abc":
        scheduler.inbox.put(NewRequest(request_id, "reply"))
        scheduler.inbox.put(StreamChunk(request_id, random_codes(1, 3)))
    scheduler.inbox.put(StreamDone("a"))
    ends = [message.request_id for message in scheduler.outbox if not isinstance(message, Chunk)]
    scheduler.stop()
    assert sorted(ends) == ["a", "b", "c"]


def test_codes_after_the_end_of_their_reply_fail_it() -> None:
    scheduler = build(ramp=(4,))
    scheduler.inbox.put(NewRequest("a", "reply"))
    scheduler.inbox.put(StreamChunk("a", random_codes(1, 9)))
    scheduler.inbox.put(StreamDone("a"))
    scheduler.inbox.put(StreamChunk("a", random_codes(1, 1)))
    assert drain(scheduler)[-1] == Failed("a", "RequestError: codes came after the end of their reply")


def test_waiting_frames_are_counted_over_all_pieces() -> None:
    scheduler = build(most_frames=8, ramp=(8,))
    scheduler.inbox.put(NewRequest("a", "reply"))
    for _ in range(2):
        scheduler.inbox.put(StreamChunk("a", random_codes(1, 4)))
    scheduler.inbox.put(NewRequest("b", "reply"))
    for _ in range(3):
        scheduler.inbox.put(StreamChunk("b", random_codes(1, 3)))
    came = drain(scheduler)
    assert [m for m in came if isinstance(m, Failed)] == [
        Failed("b", "RequestError: 9 frames wait to be decoded, limit 8")
    ]
    assert len(sound_of(came, "a")) == 8 * FRAME - DELAY


def test_what_is_ready_is_decoded_without_another_message() -> None:
    """A step that leaves frames ready does not wait for news before the next."""
    scheduler = build(ramp=(1,))
    scheduler.inbox.put(NewRequest("a", "reply"))
    scheduler.inbox.put(StreamChunk("a", random_codes(1, 3)))
    for _ in range(3):
        scheduler.step()
    assert scheduler._speaking["a"].offset == 3 * FRAME - DELAY


class TrippingAtTheEnd(TinyVocoder):
    """Cannot flush a single row."""

    def flush(self, state: State, mask: Rows) -> Samples:
        if mask.sum() == 1:
            raise ArithmeticError("alone")
        return super().flush(state, mask)


def test_a_flush_that_fails_costs_its_reply_alone() -> None:
    scheduler = build(TrippingAtTheEnd())
    codes = random_codes(1, 4)
    for message in (NewRequest("good", "reply"), NewRequest("bad", "reply"), StreamChunk("good", codes)):
        scheduler.inbox.put(message)
    scheduler.inbox.put(StreamDone("bad"))
    came = drain(scheduler)
    assert came[0] == Failed("bad", "ArithmeticError: alone")
    assert held(scheduler)["vocoder_slots"] == 1
    scheduler.inbox.put(StreamChunk("good", codes))
    came += drain(scheduler)
    assert_allclose(sound_of(came, "good"), offline(np.concatenate([codes, codes]))[: 8 * FRAME - DELAY], atol=1e-6)


def test_a_talker_a_little_more_than_twice_real_time_never_runs_dry() -> None:
    """Frames come at 2.2 times the pace at which they are heard; the sound of each is there before it is due."""
    scheduler = build()
    scheduler.inbox.put(NewRequest("a", "reply"))
    pace, begun, sound = 2.2, None, 0
    for number in range(1, 200):
        scheduler.inbox.put(StreamChunk("a", random_codes(number, 1)))
        came = drain(scheduler)
        now = number / pace  # in frames of sound
        if begun is not None:
            assert now - begun <= sound / FRAME, f"dry at frame {number}"
        sound += sum(len(message.item[1]) for message in came if isinstance(message, Chunk))
        if begun is None and sound:
            begun = now


class Timed(TinyVocoder):
    """Keeps how long each decode took."""

    def __init__(self) -> None:
        self.ms: list[float] = []

    def decode(self, state: State, codes: NDArray[np.int64], mask: Rows) -> Samples:
        began_s = time.perf_counter()
        sound = super().decode(state, codes, mask)
        self.ms.append((time.perf_counter() - began_s) * 1000)
        return sound


def whole(scheduler: Scheduler, *pieces: Codes) -> Finished[Sound]:
    """A reply whose codes come so, each piece when the one before has been dealt with; its end."""
    scheduler.inbox.put(NewRequest("a", "reply"))
    for piece in pieces:
        scheduler.inbox.put(StreamChunk("a", piece))
        drain(scheduler)
    scheduler.inbox.put(StreamDone("a"))
    [end] = [message for message in drain(scheduler) if not isinstance(message, Chunk)]
    assert isinstance(end, Finished)
    return end


@pytest.mark.parametrize("frames", [1, 2, 20])
def test_a_reply_tells_the_frames_of_its_first_sound_and_the_time_of_its_decode(frames: int) -> None:
    """However the frames come: it is the talker's steps that count."""
    vocoder = Timed()
    began_s = time.perf_counter()
    end = whole(build(vocoder, ramp=(3, 2)), *np.split(random_codes(1, 20), range(frames, 20, frames)))
    whole_ms = (time.perf_counter() - began_s) * 1000
    assert end.metrics["first_items"] == 3
    assert vocoder.ms[0] <= end.metrics["first_compute_ms"] <= whole_ms - sum(vocoder.ms[1:])


def test_a_reply_that_is_shorter_than_its_first_step_tells_the_frames_that_it_had() -> None:
    assert whole(build(ramp=(8,)), random_codes(1, 5)).metrics["first_items"] == 5


class Late(TinyVocoder):
    """Whose sound lags behind by a frame and a bit."""

    delay_samples = FRAME + DELAY

    def flush(self, state: State, mask: Rows) -> Samples:
        return np.zeros((len(mask), self.delay_samples), np.float32)


def test_decodes_that_lie_before_the_beginning_of_the_sound_count_for_the_first_one() -> None:
    vocoder = Late()
    assert whole(build(vocoder, ramp=(1,)), random_codes(1, 9)).metrics["first_items"] == 2
    assert whole(build(vocoder, ramp=(1,)), random_codes(1, 1)).metrics["first_items"] == 1  # it came with the flush


def test_a_reply_without_sound_tells_nothing() -> None:
    end = whole(build(Late()))
    assert end.metrics == {}


def test_a_reply_that_cannot_be_opened_fails_alone() -> None:
    scheduler = build()
    scheduler.inbox.put(NewRequest("bad", "fail"))
    scheduler.inbox.put(StreamChunk("bad", random_codes(1, 2)))
    assert drain(scheduler) == [Failed("bad", "ValueError: told to fail")]
    assert held(scheduler) == IDLE


def test_what_a_long_reply_holds_does_not_grow() -> None:
    scheduler = build(ramp=(4,))
    scheduler.inbox.put(NewRequest("a", "reply"))
    sizes: list[dict[str, int]] = []
    for piece in range(200):
        scheduler.inbox.put(StreamChunk("a", random_codes(piece, 4)))
        drain(scheduler)
        sizes.append(container_sizes(scheduler))
        assert len(scheduler._speaking["a"].pending) == 0
    assert sizes[-1] == sizes[1]


@pytest.mark.parametrize(
    "settings",
    [{"ramp": None}, {"ramp": 5}, {"ramp": float("nan")}, {"most_frames": 4},
     {"slots": 0}, {"slots": True}, {"slots": 1.5}, {"ramp": ()}, {"ramp": (1, 0)}, {"ramp": (1, True)},
     {"most_frames": -1}, {"most_frames": float("nan")}],
)  # fmt: skip
def test_bad_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        Code2WavSettings(**settings)


def test_many_aborts_leave_no_container_larger() -> None:
    scheduler = build(slots=4)
    scheduler.inbox.put(NewRequest("0", "reply"))
    scheduler.abort("0")
    drain(scheduler)
    before = container_sizes(scheduler)
    ends: dict[str, int] = defaultdict(int)
    for number in range(1, 2_000):
        scheduler.inbox.put(NewRequest(f"{number}", "reply"))
        scheduler.inbox.put(StreamChunk(f"{number}", random_codes(number, number % 7)))
        if number % 3:
            scheduler.step()
        scheduler.abort(f"{number}")
        for message in drain(scheduler):
            ends[message.request_id] += isinstance(message, Aborted)
    assert set(ends.values()) == {1}
    assert container_sizes(scheduler) == before
