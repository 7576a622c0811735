"""Settings of one session: the pipeline file's, with what its client asked for."""

from typing import Any

import msgspec

from voice_runtime.errors import PeerError
from voice_runtime.pipeline.config import SessionSettings

MOST_INSTRUCTION_BYTES = 1_500  # never more tokens than bytes: they leave room in the thinker's context
CLIENT_MAY_SET = frozenset({"instructions", "greeting", "idle_s", "idle_prompts", "goodbye", "turn"})


def configured(settings: SessionSettings, changes: dict[str, Any]) -> SessionSettings:
    """settings with `changes`, whose "turn" is merged field by field.

    Raises:
        PeerError: bad_event, an unknown field or a value that does not fit.
    """
    if unknown := set(changes) - CLIENT_MAY_SET:
        raise PeerError(
            "bad_event", f"configure has {sorted(unknown)[0]!r}, expected {', '.join(sorted(CLIENT_MAY_SET))}"
        )
    instructions = changes.get("instructions", "")
    if isinstance(instructions, str) and (size := len(instructions.encode())) > MOST_INSTRUCTION_BYTES:
        raise PeerError("bad_event", f"configure has instructions of {size} bytes, expected {MOST_INSTRUCTION_BYTES}")
    table = msgspec.to_builtins(settings)
    turn = changes.get("turn", {})
    if not isinstance(turn, dict):
        raise PeerError("bad_event", f"configure has turn = {type(turn).__name__}, expected an object")
    table.update({**changes, "turn": {**table["turn"], **turn}})
    try:
        return msgspec.convert(table, SessionSettings)
    except msgspec.ValidationError as error:
        raise PeerError("bad_event", f"configure: {error}") from None
