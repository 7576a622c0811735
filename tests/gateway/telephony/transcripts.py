"""Recorded-style conversations, one file per protocol: tests/transcripts/CODEC.jsonl, or CODEC-variant.jsonl.

A line is a message of the carrier with the events that it means, or a command of the agent with its messages.
"""

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec

from voice_runtime.gateway.protocols.telephony import base
from voice_runtime.gateway.protocols.telephony.audiosocket import AudioSocketCodec
from voice_runtime.gateway.protocols.telephony.registry import CODECS

FOLDER = Path(__file__).parents[2] / "transcripts"
PATHS = sorted(FOLDER.glob("*.jsonl"))
EVERY_CODEC: dict[str, type[base.CarrierCodec]] = {**CODECS, AudioSocketCodec.name: AudioSocketCodec}


@dataclass(frozen=True, slots=True)
class Heard:
    """What the carrier says, and what it means."""

    message: base.Wire
    events: list[base.CarrierEvent]


@dataclass(frozen=True, slots=True)
class Said:
    """What the agent wants, and how it says so."""

    command: base.Command
    messages: list[base.Wire]


def codec_of(path: Path) -> base.CarrierCodec:
    return EVERY_CODEC[path.stem.partition("-")[0]]()


def lines(path: Path) -> list[Heard | Said]:
    return [_line(json.loads(line)) for line in path.read_text().splitlines()]


def messages(name: str) -> list[list[base.Wire]]:
    """What the carrier says in each of a codec's conversations."""
    paths = [path for path in PATHS if path.stem.partition("-")[0] == name]
    return [[line.message for line in lines(path) if isinstance(line, Heard)] for path in paths]


def _line(found: dict[str, Any]) -> Heard | Said:
    if found["from"] == "carrier":
        message = found["text"] if "text" in found else base64.b64decode(found["base64"])
        return Heard(message, [cast(base.CarrierEvent, _value(event)) for event in found["events"]])
    binary = [base64.b64decode(message) for message in found.get("base64", [])]
    return Said(cast(base.Command, _value(found["command"])), [*found.get("text", []), *binary])


def _value(found: dict[str, Any]) -> object:
    """{"Audio": {"data": "//8="}} -> Audio(b"\xff\xff")"""
    ((name, fields),) = found.items()
    return msgspec.convert(fields, getattr(base, name))
