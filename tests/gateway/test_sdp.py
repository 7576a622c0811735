"""Session descriptions of real peers, and of none: what is let through, what is changed, what is refused."""

import contextlib
import re

import pytest
from aiortc import RTCConfiguration, RTCPeerConnection, RTCRtpReceiver, RTCSessionDescription
from hypothesis import given
from hypothesis import strategies as st

from voice_runtime.errors import PeerError
from voice_runtime.gateway.protocols import sdp
from voice_runtime.gateway.protocols.sdp import MOST_CANDIDATES, OPUS_WISHES, Fragment

FINGERPRINT = ":".join(["5A"] * 32)
HOST = "a=candidate:1467250027 1 udp 2122260223 192.0.2.7 46243 typ host generation 0 network-id 1"
HIDDEN = "a=candidate:842163049 1 udp 1677729535 9b36eaac-bb2e-49bb-bb78-21c41c499900.local 46243 typ host generation 0"
# As Chromium 130 writes it, with fewer codecs and extensions.
CHROMIUM = "\r\n".join(
    [
        "v=0",
        "o=- 5227386348372930487 2 IN IP4 127.0.0.1",
        "s=-",
        "t=0 0",
        "a=group:BUNDLE 0 1",
        "a=extmap-allow-mixed",
        "a=msid-semantic: WMS 6ff3a1e3",
        "m=audio 46243 UDP/TLS/RTP/SAVPF 111 63 9 0 126",
        "c=IN IP4 192.0.2.7",
        "a=rtcp:9 IN IP4 0.0.0.0",
        HIDDEN,
        HOST,
        "a=ice-ufrag:Yx7d",
        "a=ice-pwd:9N6Xv0v7cJ2oL0mUyI8bqT5f",
        "a=ice-options:trickle",
        f"a=fingerprint:sha-256 {FINGERPRINT}",
        "a=setup:actpass",
        "a=mid:0",
        "a=extmap:1 urn:ietf:params:rtp-hdrext:ssrc-audio-level",
        "a=extmap:4 urn:ietf:params:rtp-hdrext:sdes:mid",
        "a=sendrecv",
        "a=msid:6ff3a1e3 d10c1b59",
        "a=rtcp-mux",
        "a=rtcp-rsize",
        "a=rtpmap:111 opus/48000/2",
        "a=rtcp-fb:111 transport-cc",
        "a=fmtp:111 minptime=10;useinbandfec=1",
        "a=rtpmap:63 red/48000/2",
        "a=fmtp:63 111/111",
        "a=rtpmap:9 G722/8000",
        "a=rtpmap:0 PCMU/8000",
        "a=rtpmap:126 telephone-event/8000",
        "a=ssrc:1632871912 cname:Qr1sXwz2C5mJ",
        "m=application 46243 UDP/DTLS/SCTP webrtc-datachannel",
        "c=IN IP4 0.0.0.0",
        "a=ice-ufrag:Yx7d",
        "a=ice-pwd:9N6Xv0v7cJ2oL0mUyI8bqT5f",
        f"a=fingerprint:sha-256 {FINGERPRINT}",
        "a=setup:actpass",
        "a=mid:1",
        "a=sctp-port:5000",
        "a=max-message-size:262144",
        "",
    ]
)
VIDEO = "m=video 9 UDP/TLS/RTP/SAVPF 96\r\na=rtpmap:96 VP8/90000\r\n"
AUDIO = CHROMIUM[CHROMIUM.index("m=audio") : CHROMIUM.index("m=application")]
CHANNEL = CHROMIUM[CHROMIUM.index("m=application") :]
HEAD = CHROMIUM[: CHROMIUM.index("m=audio")]


async def aiortc_offer() -> str:
    connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    connection.addTransceiver("audio")
    connection.createDataChannel("events")
    await connection.setLocalDescription(await connection.createOffer())
    offer: str = connection.localDescription.sdp
    await connection.close()
    return offer


async def answer_to(offer: str) -> str:
    """Of aiortc, in the codec that we ask for."""
    connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    capabilities = RTCRtpReceiver.getCapabilities("audio")
    assert capabilities is not None
    opus = [codec for codec in capabilities.codecs if codec.mimeType == "audio/opus"]
    connection.addTransceiver("audio").setCodecPreferences(opus)
    await connection.setRemoteDescription(RTCSessionDescription(offer, "offer"))
    await connection.setLocalDescription(await connection.createAnswer())
    answer: str = connection.localDescription.sdp
    await connection.close()
    return answer


def refusal(offer: str) -> str:
    with pytest.raises(PeerError, match="expected") as caught:
        sdp.checked_offer(offer)
    assert caught.value.code == "bad_offer"
    return str(caught.value)


# Offers


def test_of_a_browsers_offer_only_the_hidden_candidates_are_dropped() -> None:
    assert sdp.checked_offer(CHROMIUM) == CHROMIUM.replace(f"{HIDDEN}\r\n", "")
    assert ".local" not in sdp.checked_offer(CHROMIUM)


async def test_an_offer_of_aiortc_passes_as_it_is() -> None:
    offer = await aiortc_offer()
    assert sdp.checked_offer(offer) == offer
    assert "typ host" in offer


def test_an_offer_need_not_have_a_data_channel() -> None:
    assert sdp.checked_offer(HEAD + AUDIO).endswith("cname:Qr1sXwz2C5mJ\r\n")


@pytest.mark.parametrize("ends", ["\r\n", "\n"])
@pytest.mark.parametrize("name", ["a.local", "9b36eaac.LOCAL", "a.b.local"])
def test_hidden_candidates_are_dropped_and_no_others(ends: str, name: str) -> None:
    hidden = f"a=candidate:1 1 udp 1 {name} 9 typ host{ends}"
    kept = f"a=candidate:1 1 udp 1 2001:db8::1 9 typ srflx raddr x.local rport 9{ends}"
    offer = f"m=audio 9 x{ends}{hidden}{kept}{hidden}a=rtpmap:111 opus/48000/2{ends}"
    assert sdp.checked_offer(offer).splitlines() == offer.replace(hidden, "").splitlines()


@pytest.mark.parametrize(
    ("offer", "found"),
    [
        ("", "none"),
        ("v=0\r\n", "none"),
        (HEAD + CHANNEL, "application"),
        (HEAD + VIDEO, "video"),
        (HEAD + AUDIO + VIDEO, "audio, video"),
        (HEAD + AUDIO + AUDIO, "audio, audio"),
        (HEAD + AUDIO + CHANNEL + CHANNEL, "audio, application, application"),
        (HEAD + AUDIO * 9, "audio, audio, audio, audio, audio"),
    ],
    ids=range(8),
)
def test_an_offer_of_other_media_is_refused(offer: str, found: str) -> None:
    assert refusal(offer) == f"media are {found}, expected one audio and at most one application"


@pytest.mark.parametrize("codec", ["opus/48000", "opus/16000/2", "PCMU/8000", "xopus/48000/2"])
def test_an_offer_without_opus_is_refused(codec: str) -> None:
    assert "no Opus" in refusal(CHROMIUM.replace("opus/48000/2", codec))


def test_an_offer_with_more_candidates_than_any_peer_has_is_refused() -> None:
    sdp.checked_offer(CHROMIUM + f"{HOST}\r\n" * (MOST_CANDIDATES - 2))
    assert "candidates" in refusal(CHROMIUM + f"{HOST}\r\n" * (MOST_CANDIDATES - 1))


# Answers


async def test_a_browser_is_asked_for_error_correction_under_its_own_number_for_opus() -> None:
    answer = sdp.tuned_answer(await answer_to(sdp.checked_offer(CHROMIUM)))
    assert re.findall("a=fmtp:.*", answer) == [f"a=fmtp:111 {OPUS_WISHES}\r"]
    assert f"a=rtpmap:111 opus/48000/2\r\na=fmtp:111 {OPUS_WISHES}\r\n" in answer
    assert "useinbandfec=1" in OPUS_WISHES


async def test_so_is_a_peer_of_aiortc() -> None:
    plain = await answer_to(sdp.checked_offer(await aiortc_offer()))
    answer = sdp.tuned_answer(plain)
    assert f"a=rtpmap:96 opus/48000/2\r\na=fmtp:96 {OPUS_WISHES}\r\n" in answer
    assert answer.replace(f"a=fmtp:96 {OPUS_WISHES}\r\n", "") == plain


def test_nothing_is_asked_of_other_codecs() -> None:
    answer = "a=rtpmap:63 red/48000/2\r\na=rtpmap:9 G722/8000\r\na=rtpmap:110 opus/48000/1\r\n"
    assert sdp.tuned_answer(answer) == answer


# Fragments


def test_a_fragment_has_the_candidates_found_since_and_whose_they_are() -> None:
    text = f"a=ice-ufrag:Yx7d\r\na=ice-pwd:9N6X\r\nm=audio 9 RTP/AVP 0\r\na=mid:0\r\n{HOST}\r\n{HIDDEN}\r\n{HOST}\r\n"
    candidate = HOST.removeprefix("a=")
    assert sdp.fragment(text) == Fragment("0", "Yx7d", [candidate, candidate], is_last=False)


@pytest.mark.parametrize("text", ["a=end-of-candidates", "a=end-of-candidates\r\n", f"{HOST}\na=end-of-candidates\n"])
def test_the_last_fragment_says_so(text: str) -> None:
    assert sdp.fragment(text).is_last


@pytest.mark.parametrize("text", ["", "\r\n", f"{HOST} a=end-of-candidates", "xa=end-of-candidates"])
def test_another_fragment_is_not_the_last(text: str) -> None:
    assert not sdp.fragment(text).is_last
    assert (sdp.fragment(text).mid, sdp.fragment(text).ufrag) == (None, None)


def test_a_fragment_of_more_candidates_than_any_peer_has_is_refused() -> None:
    assert len(sdp.fragment(f"{HOST}\r\n" * MOST_CANDIDATES).candidates) == MOST_CANDIDATES
    with pytest.raises(PeerError, match=f"65 candidates, expected at most {MOST_CANDIDATES}") as caught:
        sdp.fragment(f"{HOST}\r\n" * (MOST_CANDIDATES + 1))
    assert caught.value.code == "bad_candidates"


def test_the_credentials_of_an_offer_are_those_of_its_first_part() -> None:
    assert sdp.ufrag(CHROMIUM) == "Yx7d"
    assert sdp.ufrag(HEAD) is None


# Any text

LINES = [*CHROMIUM.split("\r\n"), *VIDEO.split("\r\n"), "a=end-of-candidates", "a=candidate:", "m= ", "a=mid:", "\x00é"]
texts = st.one_of(
    st.text(max_size=300),
    st.builds(
        str.join,
        st.sampled_from(["\r\n", "\n", "\r", " "]),
        st.lists(st.sampled_from(LINES) | st.text(max_size=9), max_size=30),
    ),
)


@given(text=texts)
def test_no_text_brings_anything_but_a_refusal_or_an_offer_without_hidden_candidates(text: str) -> None:
    with contextlib.suppress(PeerError):
        offer = sdp.checked_offer(text)
        assert sdp.checked_offer(offer) == offer
    with contextlib.suppress(PeerError):
        found = sdp.fragment(text)
        assert all(candidate.startswith("candidate:") for candidate in found.candidates)
    assert len(sdp.tuned_answer(text)) >= len(text)


def test_the_longest_text_takes_no_time() -> None:
    """Patterns that go back and forth over it would take minutes, not the blink that this takes."""
    for line in ("a=candidate:", "a=candidate:" + "a " * 4, "m=", "a=rtpmap:1", "a=mid:"):
        text = (line + "a" * (sdp.MOST_OFFER_BYTES - len(line)))[: sdp.MOST_OFFER_BYTES]
        refusal(text)
        sdp.fragment(text)
        assert sdp.tuned_answer(text) == text


@pytest.mark.parametrize("border", ["\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_what_another_parser_takes_for_the_end_of_a_line_hides_nothing(border: str) -> None:
    hidden = border.join(["a=x", "m=audio 9 UDP/TLS/RTP/SAVPF 111", "a=y"])
    with pytest.raises(PeerError, match="media are audio, audio"):
        sdp.checked_offer("v=0\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=rtpmap:111 opus/48000/2\r\n" + hidden)
    found = sdp.fragment("a=mid:0" + border + "a=candidate:1 1 udp 1 192.0.2.1 9 typ host")
    assert len(found.candidates) == 1
