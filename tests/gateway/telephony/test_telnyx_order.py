"""Telnyx's chunks, sorted: without a clock, and without losing sound that came."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voice_runtime.gateway.protocols.telephony.base import Audio
from voice_runtime.gateway.protocols.telephony.telnyx import RESTART_CHUNKS, WINDOW_CHUNKS, ChunkOrder, TelnyxCodec


def ordered(chunks: list[int]) -> list[int]:
    order = ChunkOrder()
    out = [data for chunk in chunks for data in order.push(chunk, chunk.to_bytes(8))]
    return [int.from_bytes(data) for data in out + order.flush()]


@st.composite
def shuffled_a_little(draw: st.DrawFn) -> list[int]:
    """Chunks from 1, none further from its place than the window takes."""
    count = draw(st.integers(1, 30))
    delays = draw(st.lists(st.integers(0, WINDOW_CHUNKS - 1), min_size=count, max_size=count))
    return sorted(range(1, count + 1), key=lambda chunk: (chunk + delays[chunk - 1], chunk))


@given(chunks=shuffled_a_little())
def test_chunks_that_are_a_little_out_of_order_come_out_in_order_and_all(chunks: list[int]) -> None:
    assert ordered(chunks) == sorted(chunks)


@settings(max_examples=50)
@given(chunks=shuffled_a_little(), data=st.data())
def test_lost_and_repeated_chunks_cost_only_themselves(chunks: list[int], data: st.DataObject) -> None:
    lost = data.draw(st.sets(st.sampled_from(chunks), max_size=3))
    kept = [chunk for chunk in sorted(chunks) if chunk not in lost]
    repeated = [chunk for chunk in kept for _ in range(data.draw(st.integers(1, 2)))]
    assert ordered(repeated) == kept


def test_a_missing_chunk_is_given_up_when_the_window_is_full() -> None:
    order = ChunkOrder()
    assert [order.push(chunk, b"%d" % chunk) for chunk in (1, 3, 4, 5)] == [[b"1"], [], [], []]
    assert order.push(6, b"6") == [b"3", b"4", b"5", b"6"]
    assert order.push(2, b"2") == []
    assert order.push(7, b"7") == [b"7"]


@pytest.mark.parametrize("first", [0, 1])
def test_a_count_from_0_or_1_waits_for_nothing(first: int) -> None:
    order = ChunkOrder()
    assert [order.push(first + at, bytes([at])) for at in range(3)] == [[b"\0"], [b"\1"], [b"\2"]]


def test_numbers_that_no_call_reaches_do_not_make_it_deaf() -> None:
    order = ChunkOrder()
    far = [10**14 + at for at in range(WINDOW_CHUNKS)]
    assert [len(order.push(chunk, b"x")) for chunk in far] == [0, 0, 0, WINDOW_CHUNKS]
    assert order.push(1, b"1") == [b"1"]
    assert order.push(2, b"2") == [b"2"]


def test_a_new_count_first_gives_what_waited_of_the_old_one() -> None:
    order = ChunkOrder()
    for chunk in range(1, RESTART_CHUNKS + 10):
        assert order.push(chunk, b"x") == [b"x"]
    assert order.push(RESTART_CHUNKS + 20, b"old") == []
    assert order.push(1, b"new") == [b"old", b"new"]


def test_a_chunk_without_sound_keeps_its_place_in_the_count() -> None:
    codec = TelnyxCodec()
    codec.receive('{"event":"start","stream_id":"s","start":{}}')
    assert codec.receive('{"event":"media","media":{"chunk":1,"payload":""}}') == []
    assert codec.receive('{"event":"media","media":{"chunk":2,"payload":"//8="}}') == [Audio(b"\xff\xff")]
