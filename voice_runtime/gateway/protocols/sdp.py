"""What is done to session descriptions before and after aiortc has them. Sans-IO.

Source: RFC 8866 (SDP), RFC 7587 section 6.1 (Opus), RFC 8840 (trickle ICE fragments), RFC 9725 (WHIP).
"""

import re
from dataclasses import dataclass

from voice_runtime.errors import PeerError

MOST_OFFER_BYTES = 32_768
MOST_FRAGMENT_BYTES = 8_192
MOST_CANDIDATES = 64
# Our receiver knows what to do with the error correction; stereo and pauses in sending would be of no use to it.
OPUS_WISHES = "minptime=10;useinbandfec=1;stereo=0;usedtx=0"
_KINDS = re.compile(r"^m=(\S+) ", re.MULTILINE)
_OPUS = re.compile(r"^a=rtpmap:(\d+) opus/48000/2\r?\n", re.MULTILINE | re.IGNORECASE)
# An mDNS name hides a browser's address. Resolving it takes a second, and the browser's own checks reveal it sooner.
_HIDDEN = re.compile(r"^a=candidate:(?:\S+ ){4}\S+\.local .*\r?\n?", re.MULTILINE | re.IGNORECASE)
_CANDIDATE = re.compile(r"^a=(candidate:[^\r\n]+)", re.MULTILINE)
_MID = re.compile(r"^a=mid:(\S+)", re.MULTILINE)
_UFRAG = re.compile(r"^a=ice-ufrag:(\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Fragment:
    """Candidates that a peer has found since its offer. candidates: as in SDP, without "a="."""

    mid: str | None
    ufrag: str | None
    candidates: list[str]
    is_last: bool


def checked_offer(offer: str) -> str:
    """The offer as aiortc is to have it.

    Raises:
        PeerError: bad_offer; it does not offer one audio stream in Opus, and perhaps a data channel.
    """
    offer = _lines(offer)
    kinds = _KINDS.findall(offer)
    if kinds.count("audio") != 1 or kinds.count("application") > 1 or set(kinds) - {"audio", "application"}:
        found = ", ".join(kinds[:5]) or "none"
        raise PeerError("bad_offer", f"media are {found}, expected one audio and at most one application")
    if not _OPUS.search(offer):
        raise PeerError("bad_offer", "no Opus is offered, expected a=rtpmap with opus/48000/2")
    if len(_CANDIDATE.findall(offer)) > MOST_CANDIDATES:
        raise PeerError("bad_offer", f"more than {MOST_CANDIDATES} candidates, expected fewer")
    return _HIDDEN.sub("", offer)


def _lines(text: str) -> str:
    """One line a line: aiortc takes whatever str.splitlines does for a border, and so must our checks."""
    return "\r\n".join([*text.splitlines(), ""])


def tuned_answer(answer: str) -> str:
    """The answer with what we want of the peer's Opus: without it, browsers send no error correction."""
    return _OPUS.sub(lambda line: f"{line[0]}a=fmtp:{line[1]} {OPUS_WISHES}\r\n", answer)


def ufrag(description: str) -> str | None:
    found = _UFRAG.search(description)
    return found[1] if found else None


def fragment(text: str) -> Fragment:
    """A trickle ICE fragment.

    Raises:
        PeerError: bad_candidates.
    """
    text = _lines(text)
    found = _CANDIDATE.findall(_HIDDEN.sub("", text))
    if len(found) > MOST_CANDIDATES:
        raise PeerError("bad_candidates", f"{len(found)} candidates, expected at most {MOST_CANDIDATES}")
    mid = _MID.search(text)
    is_last = "\na=end-of-candidates" in f"\n{text}"
    return Fragment(mid[1] if mid else None, ufrag(text), found, is_last)
