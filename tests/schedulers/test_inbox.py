"""The inbox: what is taken after puts, aborts and ends; and that nothing of a request is kept."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.clock import Clock
from voice_runtime.errors import QueueFullError
from voice_runtime.schedulers.inbox import Inbox
from voice_runtime.schedulers.messages import Abort, Inbound, Inquire, NewRequest, StreamChunk, StreamDone


def taken(inbox: Inbox[str]) -> list[Inbound[str]]:
    messages = []
    while (entry := inbox.take(timeout_s=0)) is not None:
        messages.append(entry[0])
    return messages


def test_messages_are_taken_in_order_each_with_its_time_of_arrival() -> None:
    clock = Clock(5.0)
    inbox: Inbox[str] = Inbox(clock=clock)
    inbox.put(NewRequest("a", "hello"))
    clock.now_s = 7.0
    inbox.put(StreamChunk("a", "more"))
    clock.now_s = 9.0
    assert inbox.take() == (NewRequest("a", "hello"), 5.0)
    assert inbox.take() == (StreamChunk("a", "more"), 7.0)
    assert inbox.take(timeout_s=0) is None


def test_an_abort_drops_what_is_queued_for_the_request_and_is_taken_next() -> None:
    inbox: Inbox[str] = Inbox()
    for message in (NewRequest("a", ""), NewRequest("b", ""), StreamChunk("a", "1"), StreamChunk("b", "1")):
        inbox.put(message)
    inbox.put(StreamDone("b"))
    inbox.abort("b")
    assert taken(inbox) == [Abort("b"), NewRequest("a", ""), StreamChunk("a", "1")]


def test_an_abort_message_is_an_abort() -> None:
    inbox: Inbox[str] = Inbox()
    inbox.put(NewRequest("a", ""))
    inbox.put(Abort("a"))
    assert taken(inbox) == [Abort("a")]


def test_what_follows_an_abort_is_dropped() -> None:
    inbox: Inbox[str] = Inbox()
    inbox.put(NewRequest("a", ""))
    inbox.abort("a")
    inbox.put(StreamChunk("a", "1"))
    inbox.put(StreamDone("a"))
    assert taken(inbox) == [Abort("a")]


def test_aborts_of_unknown_and_ended_requests_and_second_aborts_leave_nothing() -> None:
    inbox: Inbox[str] = Inbox()
    inbox.abort("unknown")
    inbox.put(Abort("unknown"))
    assert inbox.held() == {"inbox_messages": 0, "live_requests": 0}
    inbox.put(NewRequest("a", ""))
    inbox.abort("a")
    inbox.abort("a")
    assert taken(inbox) == [Abort("a")]
    inbox.abort("a")
    assert taken(inbox) == []
    inbox.settle("a")
    inbox.abort("a")
    assert inbox.held() == {"inbox_messages": 0, "live_requests": 0}


def test_an_abort_asked_for_while_the_end_was_made_is_not_taken() -> None:
    inbox: Inbox[str] = Inbox()
    inbox.put(NewRequest("a", ""))
    taken(inbox)
    inbox.abort("a")
    inbox.settle("a")
    assert taken(inbox) == []
    assert inbox.held() == {"inbox_messages": 0, "live_requests": 0}


def test_chunks_queued_behind_a_request_s_end_are_not_taken() -> None:
    inbox: Inbox[str] = Inbox()
    inbox.put(NewRequest("a", ""))
    inbox.put(StreamChunk("a", "1"))
    inbox.put(Inquire("q"))
    assert inbox.take() is not None
    inbox.settle("a")
    inbox.put(StreamDone("a"))
    assert taken(inbox) == [Inquire("q")]


def test_a_full_inbox_refuses_with_count_and_limit_and_holds_nothing_of_what_it_refused() -> None:
    inbox: Inbox[str] = Inbox(limit=2)
    inbox.put(NewRequest("a", ""))
    inbox.put(StreamChunk("a", "1"))
    for message in (NewRequest("b", ""), StreamChunk("a", "2"), StreamDone("a"), Inquire("q")):
        with pytest.raises(QueueFullError, match="2 messages wait in the inbox, limit 2"):
            inbox.put(message)
    assert inbox.live_requests() == ["a"]
    assert len(taken(inbox)) == 2


def test_an_abort_needs_no_room() -> None:
    inbox: Inbox[str] = Inbox(limit=1)
    inbox.put(NewRequest("a", ""))
    assert inbox.take() is not None
    inbox.put(NewRequest("b", ""))
    inbox.abort("a")
    assert taken(inbox) == [Abort("a"), NewRequest("b", "")]


def test_an_id_that_is_live_is_refused() -> None:
    inbox: Inbox[str] = Inbox()
    inbox.put(NewRequest("a", ""))
    with pytest.raises(ValueError, match="request a is live already, expected an id that was never used"):
        inbox.put(NewRequest("a", ""))


def test_closing_wakes_the_thread_that_waits_for_a_message() -> None:
    inbox: Inbox[str] = Inbox()
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(inbox.take()), daemon=True)
    thread.start()
    inbox.close()
    thread.join(timeout=10)
    assert found == [None]
    assert inbox.closed


def test_a_message_wakes_the_thread_that_waits_for_it() -> None:
    inbox: Inbox[str] = Inbox()
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(inbox.take(timeout_s=10)), daemon=True)
    thread.start()
    inbox.put(Inquire("q"))
    thread.join(timeout=10)
    assert [entry[0] for entry in found if isinstance(entry, tuple)] == [Inquire("q")]


actions = st.tuples(st.sampled_from(["new", "chunk", "done", "abort", "take", "settle"]), st.integers(0, 5))


@given(script=st.lists(actions, max_size=60))
def test_only_live_requests_are_taken_and_an_abort_at_most_once_each(script: list[tuple[str, int]]) -> None:
    inbox: Inbox[str] = Inbox()
    began: set[str] = set()
    ended: set[str] = set()
    aborts: list[str] = []
    for action, number in script:
        request_id = f"r{number}"
        match action:
            case "new" if request_id not in began:
                began.add(request_id)
                inbox.put(NewRequest(request_id, ""))
            case "chunk":
                inbox.put(StreamChunk(request_id, ""))
            case "done":
                inbox.put(StreamDone(request_id))
            case "abort":
                inbox.abort(request_id)
            case "settle":
                inbox.settle(request_id)
                ended |= {request_id} & began
            case "take" if (entry := inbox.take(timeout_s=0)) is not None:
                assert entry[0].request_id in began - ended
                aborts += [entry[0].request_id] if isinstance(entry[0], Abort) else []
    for request_id in inbox.live_requests():
        inbox.settle(request_id)
    assert taken(inbox) == []
    assert len(aborts) == len(set(aborts))
    assert inbox.held() == {"inbox_messages": 0, "live_requests": 0}


# Requests whose payload is still being made


def test_what_comes_before_the_payload_is_taken_behind_it() -> None:
    inbox: Inbox[str] = Inbox()
    inbox.expect("a")
    inbox.put(StreamChunk("a", "1"))
    inbox.put(StreamDone("a"))
    assert taken(inbox) == []
    inbox.fulfil(NewRequest("a", "late"))
    assert taken(inbox) == [NewRequest("a", "late"), StreamChunk("a", "1"), StreamDone("a")]


def test_a_payload_that_comes_after_the_abort_is_dropped_taken_or_not() -> None:
    inbox: Inbox[str] = Inbox()
    inbox.expect("a")
    inbox.abort("a")
    assert taken(inbox) == [Abort("a")]
    inbox.fulfil(NewRequest("a", ""))  # before it is settled
    inbox.put(StreamChunk("a", "1"))
    assert taken(inbox) == []
    inbox.settle("a")
    inbox.fulfil(NewRequest("a", ""))  # and after
    assert taken(inbox) == []
    assert inbox.held() == {"inbox_messages": 0, "live_requests": 0}


def test_a_request_that_ends_while_its_payload_is_made_gives_its_places_back() -> None:
    inbox: Inbox[str] = Inbox()
    for request_id in "abc":
        inbox.expect(request_id)
        inbox.put(StreamChunk(request_id, "early"))
    assert inbox.held()["inbox_messages"] == 6
    inbox.settle("a")
    inbox.abort("b")
    assert taken(inbox) == [Abort("b")]
    inbox.settle("b")
    inbox.fulfil(NewRequest("c", ""))
    assert len(taken(inbox)) == 2
    inbox.settle("c")
    assert inbox.held() == {"inbox_messages": 0, "live_requests": 0}


def test_places_of_expected_payloads_and_early_items_are_kept_and_counted() -> None:
    inbox: Inbox[str] = Inbox(limit=3)
    inbox.expect("a")
    inbox.put(StreamChunk("a", "1"))
    inbox.put(StreamChunk("a", "2"))
    with pytest.raises(QueueFullError, match="3 messages wait in the inbox, limit 3"):
        inbox.put(StreamChunk("a", "3"))
    with pytest.raises(QueueFullError, match="limit 3"):
        inbox.expect("b")
    inbox.fulfil(NewRequest("a", ""))
    assert len(taken(inbox)) == 3


def test_nothing_is_expected_once_the_inbox_is_closed_or_twice() -> None:
    inbox: Inbox[str] = Inbox()
    inbox.expect("a")
    with pytest.raises(ValueError, match="live already"):
        inbox.expect("a")
    inbox.close()
    with pytest.raises(QueueFullError, match="closed"):
        inbox.expect("b")
