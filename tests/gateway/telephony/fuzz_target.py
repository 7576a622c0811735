"""A coverage-guided fuzzer of one codec, a process of its own: python -m tests.gateway.telephony.fuzz_target NAME ...

What follows the name goes to libFuzzer. An invariant that breaks ends the process with an error and its input.
"""

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["voice_runtime.gateway.protocols.telephony"]):
    from tests.gateway.telephony import invariants, transcripts
    from voice_runtime.gateway.protocols.telephony import base

BINARY = b"="  # begins a line that stands for a binary message


def messages(data: bytes) -> list[base.Wire]:
    """Lines to messages; what is no UTF-8 becomes text that no JSON can hold."""
    return [
        line.removeprefix(BINARY) if line.startswith(BINARY) else line.decode("utf-8", "surrogateescape")
        for line in data.split(b"\n")
    ]


def chunks(data: bytes) -> list[base.Wire]:
    """A stream of bytes, cut into pieces of the size that its first byte says."""
    size = data[0] + 1 if data else 1
    return [data[start : start + size] for start in range(1, len(data), size)]


def seeds(name: str) -> list[bytes]:
    """From the recorded conversations: how a call starts, and that with each other message after it."""
    found = []
    for heard in transcripts.messages(name):
        codec = transcripts.EVERY_CODEC[name]()
        start = next(message for message in heard if codec.receive(message))
        found += [as_input(name, [start, message]) for message in heard]
    return found


def as_input(name: str, heard: list[base.Wire]) -> bytes:
    if name == "audiosocket":
        return b"\x7f" + b"".join(message for message in heard if isinstance(message, bytes))
    return b"\n".join(message.encode() if isinstance(message, str) else BINARY + message for message in heard)


def main() -> None:
    name, corpus = sys.argv[1], Path(sys.argv[2])
    for at, seed in enumerate(seeds(name)):
        (corpus / f"seed-{at}").write_bytes(seed)
    make, cut = transcripts.EVERY_CODEC[name], chunks if name == "audiosocket" else messages

    def one_input(data: bytes) -> None:
        invariants.feed(make(), cut(data))

    atheris.Setup([sys.argv[0], str(corpus), *sys.argv[3:]], one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
