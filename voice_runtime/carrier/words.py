"""Reading the agent's JSON, as strictly as the strictest carrier: everything unexpected is a Violation. Sans-IO."""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from voice_runtime.carrier.base import Violation, Wire

SHOWN = 60  # characters of what was found


def write(message: Mapping[str, object]) -> str:
    return json.dumps(message)


def fields(message: Wire) -> dict[str, Any]:
    """A text message that is a JSON object."""
    if isinstance(message, bytes):
        raise Violation(f"a binary message of {len(message)} bytes, expected text")
    try:
        found = json.loads(message)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Violation(f"message is {message[:SHOWN]!r}, expected a JSON object")
    return found


def inner(found: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = found.get(name)
    if not isinstance(value, dict):
        raise Violation(f"{name} is {_shown(value)}, expected an object")
    return value


def string(found: Mapping[str, Any], name: str) -> str:
    value = found.get(name)
    if not isinstance(value, str) or not value:
        raise Violation(f"{name} is {_shown(value)}, expected a string")
    return value


def same(found: Mapping[str, Any], name: str, expected: object) -> None:
    value = found.get(name)
    if value != expected or isinstance(value, bool):
        raise Violation(f"{name} is {_shown(value)}, expected {expected!r}")


def no_numbers(found: object, at: str = "message") -> None:
    """Every number on this wire is a string."""
    if isinstance(found, int | float):
        raise Violation(f"{at} has {found!r}, expected a string")
    if isinstance(found, dict):
        for name, value in found.items():
            no_numbers(value, name)


def unknown(found: Mapping[str, Any], name: str, expected: str) -> Violation:
    return Violation(f"{name} is {_shown(found.get(name))}, expected {expected}")


def payload(found: Mapping[str, Any]) -> bytes:
    """Sound in base64, without a file's header."""
    text = string(found, "payload")
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Violation(f"payload is no base64: {error}") from None
    if data.startswith((b"RIFF", b"OggS", b"ID3")):
        raise Violation(f"payload begins with {data[:4]!r}, expected bare samples")
    return data


def base64_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _shown(value: object) -> str:
    return repr(value)[:SHOWN]
