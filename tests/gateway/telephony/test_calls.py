"""Whole calls of every protocol over real sockets: the carrier's side is a second implementation, see `carrier`."""

import asyncio
import contextlib
import re

import msgspec
import numpy as np
import pytest
from websockets.asyncio.client import connect

from tests.support.exchange import (
    PROTOCOLS,
    SESSION,
    VOICE_HZ,
    Exchange,
    all_heard,
    as_heard,
    clause,
    concurrently,
    exchange,
    lateness,
    place_of,
    speech,
    until,
)
from tests.support.played_stages import Asked
from tests.support.speech import synthesise
from voice_runtime import assets
from voice_runtime.audio.pcm import Samples
from voice_runtime.carrier.call import Call, dial
from voice_runtime.models.vad import SileroVad
from voice_runtime.pipeline.config import TurnSettings
from voice_runtime.stages.payloads import Prompt, SpokenClause, Transcript, TurnEnd

LEAD_S = 0.4
SLACK_S = 0.1
ANSWER = " ".join(f"word{number}" for number in range(10, 50))  # a word in 100 ms of 4 s
PAUSES = ("asterisk", "asterisk-json")
CLEARS = tuple(name for name in PROTOCOLS if name != "audiosocket")


def tone(hz: float, seconds: float) -> Samples:
    return (0.4 * np.sin(2 * np.pi * hz * np.arange(int(seconds * VOICE_HZ)) / VOICE_HZ)).astype(np.float32)


def pitch(samples: Samples, rate_hz: int) -> float:
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(samples.size)))
    return float(np.argmax(spectrum) * rate_hz / samples.size)


def prompted(asked: Asked) -> tuple[list[str], str]:
    """The words of the agent's last answer as the thinker is told of it, and what it is to answer."""
    assert isinstance(asked.payload, Prompt)
    reply, question = asked.payload.messages[-2:]
    return re.findall(r"\w+", reply.text), question.text


async def answered(there: Exchange, call: Call, spoken: SpokenClause, keys: str = "1#", count: int = 1) -> Asked:
    """The agent is asked by keys, and begins to answer."""
    await call.press(keys)
    asked = await there.stages.wait_asked("thinker", count)
    asked.bring(spoken)
    return asked


async def heard_to_the_end(call: Call, expected: Samples) -> None:
    """Until the last of what was said has been heard, whatever was lost or came twice before."""
    async with asyncio.timeout(20):
        while place_of(expected[-200:], all_heard(call)) < 0:
            with contextlib.suppress(TimeoutError):  # it ended right now
                await call.wait_speaking(timeout_s=1.0)
            await call.wait_silent(0.05)


def in_order(call: Call) -> bool:
    """Whether the marks that are told as played are each told once, and later ones later."""
    told = [int(happened.detail.removeprefix("m")) for happened in call.leg.happened if happened.what == "played"]
    return told == sorted(set(told))


def word_begins_s(spoken: SpokenClause, number: int) -> float:
    return spoken.words[number].sample / VOICE_HZ


async def test_the_caller_is_heard_as_they_spoke_whatever_the_carrier_makes_of_it() -> None:
    async def scenario(protocol: str) -> None:
        said = np.concatenate([tone(440, 0.5), tone(1_000, 0.5)])
        async with exchange() as there, there.dial(protocol, seed=3) as call:
            await call.say(said, VOICE_HZ)

            def voiced() -> Samples:
                heard = there.ears.heard()
                loud = np.flatnonzero(np.abs(heard) > 0.1)
                return heard[loud[0] :][:16_000] if loud.size else heard[:0]

            await until(there.ears.news, lambda: voiced().size == 16_000, "a second of the caller")
            heard = voiced()
            assert pitch(heard[:7_800], 16_000) == pytest.approx(440, abs=5)
            assert pitch(heard[8_200:15_800], 16_000) == pytest.approx(1_000, abs=5)
            assert np.sqrt(np.mean(np.square(heard[1_000:15_000]))) == pytest.approx(0.4 / np.sqrt(2), rel=0.05)
            # A frame that is lost or out of its place would break the wave: no step is higher than a tone's own.
            assert np.abs(np.diff(heard[200:15_600])).max() < 0.4 * 2 * np.pi * 1_000 / 16_000 * 1.3
            assert call.faults == []

    await concurrently(scenario)


async def test_the_agent_is_heard_sample_by_sample_in_real_time_and_never_sends_more_than_its_lead() -> None:
    async def scenario(protocol: str) -> None:
        said = speech(1.5)
        async with lateness() as busy, exchange() as there, there.dial(protocol) as call:
            (await answered(there, call, clause(ANSWER, said))).finish()
            await call.wait_heard(1.5)
            await call.wait_silent()
            assert place_of(as_heard(call, said), all_heard(call)) == 0
            took_s = call.leg.earpiece.silent_since_s - call.heard[0].at_s
            filled_s = 0.2 if protocol == "exotel" else 0.02  # of its last message
            assert 1.499 < took_s < 1.5 + filled_s + SLACK_S + busy.late_s
            lead_s = (0.06 if protocol == "audiosocket" else LEAD_S) + filled_s
            assert call.leg.earpiece.most_ahead_s <= lead_s + SLACK_S + busy.late_s
            assert call.faults == []

    await concurrently(scenario)


async def test_digits_that_are_typed_cut_the_agent_at_once_and_history_has_what_was_heard() -> None:
    async def scenario(protocol: str) -> None:
        first, second = clause(ANSWER, speech(4.0, 1)), speech(0.5, 2)
        async with lateness() as busy, exchange() as there, there.dial(protocol) as call:
            asked = await answered(there, call, first)
            await call.wait_heard(1.0)
            pressed_s = call.clock()
            await call.press("25#")
            again = await there.stages.wait_asked("thinker", 2)
            assert asked.is_aborted
            if protocol in CLEARS:
                await call.wait_for("clear")
            await call.wait_silent(0.1)
            more_s = call.leg.earpiece.silent_since_s - pressed_s
            assert more_s < SLACK_S + (0.06 if protocol == "audiosocket" else 0) + busy.late_s
            cut = all_heard(call)
            assert place_of(cut, as_heard(call, speech(4.0, 1))) == 0
            again.bring(clause("done", second))
            again.finish()
            await call.wait_heard(cut.size / call.rate_hz + 0.5)
            assert place_of(as_heard(call, second), all_heard(call)) == cut.size
            words, typed = prompted(again)
            assert typed == "I have pressed 2 5 on my telephone."
            assert words == ANSWER.split()[: len(words)]
            assert abs(word_begins_s(first, len(words)) - cut.size / call.rate_hz) < 0.3 + busy.late_s
            assert call.faults == []

    await concurrently(scenario)


async def test_a_single_key_reaches_the_session_at_once_where_keys_interrupt() -> None:
    settings = msgspec.structs.replace(SESSION, turn=TurnSettings(digits_interrupt=True))

    async def scenario(protocol: str) -> None:
        async with exchange(settings) as there, there.dial(protocol) as call:
            asked = await answered(there, call, clause(ANSWER, speech(4.0)))
            await call.wait_heard(0.2)
            await call.press("5")
            await call.wait_silent(0.2)
            assert asked.is_aborted
            assert call.leg.earpiece.heard_s < 2.0
            assert len(there.stages.of("thinker")) == 1

    await concurrently(scenario)


async def test_marks_tell_the_ledger_what_a_distant_carrier_has_really_played() -> None:
    async def scenario(protocol: str) -> None:
        spoken = clause(ANSWER, speech(4.0))
        async with lateness() as busy, exchange() as there, there.dial(protocol, late_s=0.3) as call:
            await answered(there, call, spoken)
            await call.wait_for("played", 10)
            stood_s = busy.late_s
            await call.wait_heard(1.2)
            heard_s = call.leg.earpiece.heard_s
            await call.press("2#")
            words, _ = prompted(await there.stages.wait_asked("thinker", 2))
            # By the clock alone 0.3 s more would count: three words, of which the last has begun 50 to 150 ms ago.
            assert word_begins_s(spoken, len(words) - 1) < heard_s + 0.08 + busy.late_s - stood_s
            assert in_order(call)
            assert call.faults == []

    await concurrently(scenario, "twilio", "telnyx", "plivo", "vonage", "asterisk", "jambonz")


async def test_after_a_false_alarm_the_same_samples_go_on_and_nothing_counts_twice() -> None:
    async def scenario(protocol: str) -> None:
        said = speech(2.5)
        async with lateness() as busy, exchange() as there, there.dial(protocol) as call:
            asked = await answered(there, call, clause(ANSWER, said))
            await call.wait_heard(0.8)
            await call.say(tone(440, 0.2), VOICE_HZ)
            judged = await there.stages.wait_asked("asr")
            halted_s = call.clock()
            if protocol in CLEARS:
                halted_s = await call.wait_for("pause" if protocol in PAUSES else "clear")
            judged.finish(Transcript("mm-hm"))
            asked.finish()
            if protocol in CLEARS:
                await call.wait_for(*(("go on", 1) if protocol in PAUSES else ("speaks", 2)))
            expected = as_heard(call, said)
            await heard_to_the_end(call, expected)
            heard = call.heard
            before = np.concatenate([piece.samples for piece in heard if piece.at_s < halted_s])
            after = np.concatenate([piece.samples for piece in heard if piece.at_s >= halted_s])
            if protocol == "audiosocket" or protocol in PAUSES:
                assert place_of(expected, np.concatenate([before, after])) == 0
            else:
                assert place_of(before, expected) == 0
                went_on = place_of(after[: call.rate_hz], expected)
                assert went_on >= 0
                assert abs(went_on - before.size) / call.rate_hz < SLACK_S + busy.late_s
                rest = expected[went_on:]
                if busy.late_s > SLACK_S:  # the carrier had run dry: silence fills its messages up
                    rest, after = rest[rest != 0], after[after != 0]
                assert place_of(rest, after) == 0
            await call.wait_silent(0.2 + busy.late_s)  # by the ledger, too
            await call.press("2#")
            words, _ = prompted(await there.stages.wait_asked("thinker", 2))
            assert words == ANSWER.split()
            assert in_order(call)
            assert call.faults == []

    await concurrently(scenario)


async def test_the_agents_goodbye_is_heard_whole_before_it_hangs_up() -> None:
    settings = msgspec.structs.replace(SESSION, idle_s=0.1, idle_prompts=(), goodbye="Goodbye then.")

    async def scenario(protocol: str) -> None:
        said = speech(0.73)
        async with lateness() as busy, exchange(settings) as there, there.dial(protocol, late_s=0.15) as call:
            asked = await there.stages.wait_asked("speech")
            assert asked.text == "Goodbye then."
            asked.bring(clause(asked.text, said))
            asked.finish()
            await call.wait_ended()
            assert (call.ended_by, call.line.unheard_s) == ("agent", 0)
            expected, heard = as_heard(call, said), all_heard(call)
            if busy.late_s > SLACK_S:
                expected, heard = expected[expected != 0], heard[heard != 0]
            assert place_of(expected, heard) == 0
            assert len(call.leg.at("hung up")) == (protocol in (*PAUSES, "audiosocket"))
            assert call.faults == []

    await concurrently(scenario)


async def test_an_order_hangs_up_in_mid_sentence_and_the_call_is_known_no_more() -> None:
    async def scenario(protocol: str) -> None:
        async with exchange() as there, there.dial(protocol, parameters={}) as call:
            await answered(there, call, clause(ANSWER, speech(4.0)))
            await call.wait_heard(0.2)
            (known,) = (await there.doors.ask("GET", "/v1/calls")).json()["calls"]
            assert known["carrier"] == protocol.removesuffix("-json")
            path, kind = f"/v1/calls/{known['id']}", {"content_type": "application/json"}
            for order, code in ((b'{"transfer":"x y"}', "bad_order"), (b"{}", "bad_order")):
                assert (await there.doors.ask("POST", path, order, **kind)).json()["code"] == code
            if protocol != "twilio":
                refused = await there.doors.ask("POST", path, b'{"transfer":"+15550100"}', **kind)
                assert refused.json()["code"] == "no_such_ability"
            order = b'{"transfer":"+15550100"}' if protocol == "twilio" else b'{"hangup":true}'
            assert (await there.doors.ask("POST", path, order, **kind)).status == 204
            await call.wait_ended()
            assert call.ended_by == "agent"
            assert (await there.doors.ask("POST", path, b'{"hangup":true}', **kind)).status == 404
            assert await there.sessions() == 0
            assert there.stages.live() == []

    await concurrently(scenario)


async def freed(there: Exchange) -> None:
    """Nothing is kept of any call."""
    async with asyncio.timeout(10):
        while await there.sessions() or there.stages.live():  # each time by HTTP: others run meanwhile
            pass
    assert (await there.doors.ask("GET", "/v1/calls")).json() == {"calls": []}


async def test_a_call_that_is_hung_up_or_lost_frees_everything() -> None:
    async def scenario(protocol: str) -> None:
        async with exchange() as there:
            async with there.dial(protocol) as call:
                await answered(there, call, clause(ANSWER, speech(4.0)))
                await call.wait_heard(0.1)
                call.drop()
            await freed(there)
            async with there.dial(protocol) as call:
                await answered(there, call, clause(ANSWER, speech(4.0)), count=2)
                await call.wait_heard(0.1)
                await call.hang_up()
            await freed(there)

    await concurrently(scenario)


async def test_keys_are_typed_with_a_hash_or_after_two_seconds_and_parameters_reach_the_thinker() -> None:
    async def scenario(protocol: str) -> None:
        async with exchange() as there, there.dial(protocol, parameters={"agent": "booking"}) as call:
            await call.press("12")
            pressed_s = call.clock()
            asked = await there.stages.wait_asked("thinker")
            assert call.clock() - pressed_s >= 1.95
            assert isinstance(asked.payload, Prompt)
            assert asked.payload.messages[-1].text == "I have pressed 1 2 on my telephone."
            instructions = asked.payload.instructions or ""
            told = "$agent" if protocol == "asterisk" else "booking"  # plain words have no room for variables
            assert instructions.endswith(f"by {protocol.removesuffix('-json')} for {told}.")
            await call.press("*#")
            again = await there.stages.wait_asked("thinker", 2)
            assert isinstance(again.payload, Prompt)
            assert again.payload.messages[-1].text.endswith("I have pressed * on my telephone.")

    await concurrently(scenario, *(name for name in PROTOCOLS if name != "audiosocket"))


async def test_the_door_for_any_carrier_knows_each_by_its_first_message() -> None:
    async def scenario(protocol: str) -> None:
        async with exchange() as there:
            url = f"{there.doors.url}/telephony/auto"
            async with connect(url) as socket:
                await socket.send('{"event": "hello"}')
                await socket.wait_closed()
                assert socket.close_reason == "no_such_carrier"
            assert await there.sessions() == 0
            async with dial(url, protocol) as call:
                asked = await answered(there, call, clause("yes", speech(0.2)))
                asked.finish()
                await call.wait_heard(0.2)
                (known,) = (await there.doors.ask("GET", "/v1/calls")).json()["calls"]
                assert known["carrier"] == protocol.removesuffix("-json")
                assert call.faults == []

    await concurrently(scenario, *CLEARS)


async def test_one_call_too_many_is_refused_and_the_others_go_on() -> None:
    async def scenario(protocol: str) -> None:
        async with exchange(calls=1) as there, there.dial(protocol) as call:
            asked = await answered(there, call, clause(ANSWER, speech(0.5)))
            async with there.dial(protocol) as another:
                await another.wait_ended()
                assert another.ended_by == "agent"
                assert another.line.reason == ("" if protocol == "audiosocket" else "too_many_calls")
            asked.finish()
            await call.wait_heard(0.5)
            assert call.ended_by is None

    await concurrently(scenario, "twilio", "audiosocket")


async def test_a_spoken_question_is_answered_and_a_spoken_interruption_cuts_the_answer() -> None:
    question, stop = synthesise("What is the capital of Italy?", "flite"), synthesise("Stop it, please.", "flite")
    settings = msgspec.structs.replace(SESSION, judge_turn="turn_end")
    vad = SileroVad(assets.locate("silero-vad"))

    async def scenario(protocol: str) -> None:
        async with lateness() as busy, exchange(settings, vad=vad) as there, there.dial(protocol) as call:

            async def hear() -> None:
                """What is asked of the recogniser and the judge of turns, for as long as the call is."""
                for count in range(1, 100):
                    asked = await there.stages.wait_asked("asr", count)
                    cut = there.stages.of("thinker") and call.leg.earpiece.heard_s > 0
                    asked.finish(Transcript("stop it please" if cut else "what is the capital of italy"))

            async def judge() -> None:
                for count in range(1, 100):
                    (await there.stages.wait_asked("turn_end", count)).finish(TurnEnd(1.0))

            stages = [asyncio.create_task(hear()), asyncio.create_task(judge())]
            await call.say(question, 16_000)
            asked = await there.stages.wait_asked("thinker")
            assert isinstance(asked.payload, Prompt)
            assert asked.payload.messages[-1].text == "what is the capital of italy"
            asked.bring(clause(ANSWER, speech(4.0)))
            await call.wait_heard(0.5)
            await call.say(stop, 16_000)
            again = await there.stages.wait_asked("thinker", 2)
            assert asked.is_aborted
            assert call.leg.earpiece.heard_s < 2.5 + busy.late_s
            words, said = prompted(again)
            assert words == ANSWER.split()[: len(words)]
            assert said == "stop it please"
            assert call.faults == []
            for stage in stages:
                stage.cancel()

    await concurrently(scenario, "twilio", "vonage", "exotel")
