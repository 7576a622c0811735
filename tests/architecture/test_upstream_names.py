"""What is used of aiortc and aioice beyond their public interface: three names, in one module, and they are there."""

import ast
import inspect
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path

import aioice
import aioice.ice
import pytest
from aiortc import RTCConfiguration, RTCPeerConnection
from aiortc.rtp import RtpPacket

import voice_runtime
from voice_runtime.errors import UnsupportedError
from voice_runtime.gateway.transports import upstream

PACKAGE = Path(voice_runtime.__file__).parent
SOURCE = Path(inspect.getfile(upstream))
NAMES = {upstream.JITTER_BUFFER, upstream.RTP_TIMESTAMP, upstream.HOST_ADDRESSES}
LIBRARIES = {"aiortc", "aioice"}
REFLECTION = {"getattr", "setattr", "delattr", "hasattr", "vars", "_expect"}
OF_OURSELVES = {"self", "cls"}


@cache
def users() -> list[tuple[Path, ast.Module]]:
    """The modules that import one of the libraries."""
    trees = [(path, ast.parse(path.read_text())) for path in sorted(PACKAGE.rglob("*.py"))]
    return [(path, tree) for path, tree in trees if any(name.split(".")[0] in LIBRARIES for name in imported(tree))]


def imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def reflections(tree: ast.Module) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in REFLECTION:
            yield node


def constants(tree: ast.Module) -> dict[str, str]:
    """Texts that a module gives a name."""
    return {
        ast.unparse(node.targets[0]): node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }


def test_the_modules_that_use_the_libraries_are_found() -> None:
    assert {path.name for path, _ in users()} == {"ice.py", "incoming.py", "upstream.py", "rtc.py"}


def test_no_module_touches_a_private_attribute_of_another_object() -> None:
    touched = [
        f"{path.name}: {ast.unparse(node)}"
        for path, tree in users()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.endswith("__")
        if not (isinstance(node.value, ast.Name) and node.value.id in OF_OURSELVES)
    ]
    assert touched == []


def test_no_private_name_is_imported() -> None:
    names = [name for _, tree in users() for name in imported(tree) if name.split(".")[0] in LIBRARIES]
    assert [name for name in names if any(part.startswith("_") for part in name.split("."))] == []


def test_one_module_alone_reaches_names_by_their_text_or_goes_into_the_module_of_ice() -> None:
    assert {path for path, tree in users() if [*reflections(tree)]} == {SOURCE}
    assert {path for path, tree in users() if "aioice.ice" in imported(tree)} == {SOURCE}
    written = {path for path in PACKAGE.rglob("*.py") if "_RTC" in path.read_text() or "aioice.ice" in path.read_text()}
    assert written == {SOURCE}


def test_its_list_of_three_names_is_whole() -> None:
    tree = ast.parse(SOURCE.read_text())
    listed = constants(tree)
    assert set(listed.values()) == NAMES
    assert len(NAMES) == 3
    reached = {ast.unparse(call.args[1]) for call in reflections(tree)}
    assert reached - {"name"} == set(listed)  # `name` is that of the check, which has it from one of the others
    in_ice = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and "aioice.ice" in ast.unparse(node)]
    assert {ast.unparse(node) for node in in_ice} == {"aioice.ice"}


def test_the_versions_that_it_was_read_from_are_installed() -> None:
    assert f"aiortc {version('aiortc')}" in (upstream.__doc__ or "")
    assert f"aioice {version('aioice')}" in (upstream.__doc__ or "")


async def test_the_names_exist_and_do_what_they_are_used_for() -> None:
    connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    transceiver = connection.addTransceiver("audio")
    buffer = getattr(transceiver.receiver, upstream.JITTER_BUFFER)
    assert [*inspect.signature(buffer.add).parameters] == ["packet"]
    assert buffer.add(RtpPacket()) == (False, None)
    assert upstream.rtp_timestamp(transceiver.sender) == 0
    assert [*inspect.signature(upstream._all_host_addresses).parameters] == ["use_ipv4", "use_ipv6"]
    await connection.close()


async def test_a_tapped_receiver_gives_every_packet_away_and_survives_a_fault(caplog: pytest.LogCaptureFixture) -> None:
    connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    receiver = connection.addTransceiver("audio").receiver
    taken: list[int] = []

    def take(packet: RtpPacket) -> None:
        taken.append(packet.sequence_number)
        if packet.sequence_number == 1:
            raise ValueError("of ours")

    upstream.tap(receiver, take)
    tapped = getattr(receiver, upstream.JITTER_BUFFER)
    assert [tapped.add(RtpPacket(sequence_number=number)) for number in range(3)] == [(False, None)] * 3
    assert taken == [0, 1, 2]
    assert [record.message for record in caplog.records] == ["a packet could not be taken"]
    await connection.close()


@pytest.mark.parametrize("name", [upstream.JITTER_BUFFER, upstream.RTP_TIMESTAMP, "no_such_name"])
def test_a_name_that_is_gone_is_named(name: str) -> None:
    with pytest.raises(UnsupportedError, match=f"has no {name}, expected aiortc"):
        upstream._expect(object(), name)


@pytest.mark.parametrize(("host", "address"), [("127.0.0.1", "127.0.0.1"), ("localhost", "127.0.0.1"), ("::1", "::1")])
async def test_media_bind_to_the_address_of_the_server_alone(host: str, address: str) -> None:
    try:
        upstream.listen_on(host)
        assert await gathered() == {address}
    finally:
        upstream.listen_on("0.0.0.0")


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
async def test_media_bind_to_every_address_but_loopback_where_the_server_does(host: str) -> None:
    upstream.listen_on(host)
    addresses = await gathered()
    assert addresses == set(upstream._all_host_addresses(True, True))
    assert not addresses & {"127.0.0.1", "::1"}


async def gathered() -> set[str]:
    connection = aioice.Connection(ice_controlling=True)
    await connection.gather_candidates()
    addresses = {candidate.host for candidate in connection.local_candidates}
    await connection.close()
    return addresses
