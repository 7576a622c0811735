"""https and wss with a certificate of our own making, over real sockets."""

import datetime
import http.client
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support.gateway import opened
from tests.support.serving import running
from voice_runtime.errors import ConfigError
from voice_runtime.gateway.auth import Access
from voice_runtime.gateway.server import address
from voice_runtime.gateway.tls import server_context


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate of this machine's names, signed by itself, and its key."""

    file: Path
    key: Path

    def trusted(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.file)


def make(folder: Path, name: str = "own", passphrase: bytes | None = None) -> Certificate:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    made = Certificate(folder / f"{name}.pem", folder / f"{name}.key")
    made.file.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    lock = serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    made.key.write_bytes(key.private_bytes(pem, pkcs8, lock))
    return made


async def test_page_and_session_come_over_tls_to_a_client_that_checks_the_certificate(tmp_path: Path) -> None:
    own, other = make(tmp_path), make(tmp_path, "other")
    server = server_context(own.file, own.key)
    assert server is not None
    async with opened(Access("127.0.0.1"), tls=(server, own.trusted())) as doors:
        assert b"<script" in (await doors.ask("GET", "/")).body
        origin = f"https://localhost:{doors.port}"
        assert (await doors.first(origin=origin))[0]["type"] == "ready"
    async with opened(Access("127.0.0.1"), tls=(server, other.trusted())) as doors:
        with pytest.raises(ssl.SSLCertVerificationError):
            await doors.ask("GET", "/health")


async def test_over_tls_nothing_is_spoken_in_the_clear(tmp_path: Path) -> None:
    own = make(tmp_path)
    server = server_context(own.file, own.key)
    assert server is not None
    async with opened(Access("127.0.0.1"), tls=(server, own.trusted())) as doors:
        plain = type(doors)(doors.port)
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            await plain.ask("GET", "/health")


def test_without_a_certificate_there_is_no_tls() -> None:
    assert server_context(None, None) is None


def test_one_of_the_two_files_without_the_other_is_refused(tmp_path: Path) -> None:
    own = make(tmp_path)
    with pytest.raises(ConfigError, match="tls-cert without tls-key, expected both or neither"):
        server_context(own.file, None)
    with pytest.raises(ConfigError, match="tls-key without tls-cert, expected both or neither"):
        server_context(None, own.key)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    own, missing = make(tmp_path), tmp_path / "missing.pem"
    with pytest.raises(ConfigError, match=r"tls-cert is .*missing.pem: No such file or directory, expected a file"):
        server_context(missing, own.key)
    with pytest.raises(ConfigError, match=r"tls-key is .*missing.pem: No such file or directory, expected a file"):
        server_context(own.file, missing)
    with pytest.raises(ConfigError, match=r"tls-key is .*: Is a directory, expected a file"):
        server_context(own.file, tmp_path)


def test_files_that_are_no_pair_are_refused(tmp_path: Path) -> None:
    own, other = make(tmp_path), make(tmp_path, "other")
    with pytest.raises(ConfigError, match=r"own.pem and tls-key .*other.key: KEY_VALUES_MISMATCH, expected"):
        server_context(own.file, other.key)


def test_files_that_are_no_pem_are_refused(tmp_path: Path) -> None:
    own, noise = make(tmp_path), tmp_path / "noise.pem"
    noise.write_bytes(b"\x00\xff" * 100)
    for pair in ((noise, own.key), (own.file, noise), (own.key, own.key)):
        with pytest.raises(ConfigError, match="expected a certificate and its key in PEM"):
            server_context(*pair)


def test_a_key_with_a_passphrase_is_refused_and_nobody_is_asked_for_it(tmp_path: Path) -> None:
    locked = make(tmp_path, "locked", b"sesame")
    with pytest.raises(ConfigError, match="expected a certificate and its key in PEM, without a passphrase"):
        server_context(locked.file, locked.key)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_address_that_is_printed_tells_whether_it_is_secure(host: str) -> None:
    assert address(host, 8000, is_secure=True) == "https://localhost:8000/"
    assert address(host, 8000, is_secure=False) == "http://localhost:8000/"
    assert address("2001:db8::1", 8443, is_secure=True) == "https://[2001:db8::1]:8443/"


def test_the_command_serves_https_with_the_files_it_is_given(tmp_path: Path) -> None:
    own = make(tmp_path)
    files = ("--tls-cert", str(own.file), "--tls-key", str(own.key))
    with running("gateway", "--port", "0", *files, VOICE_RUNTIME_DIR=str(tmp_path / "sockets")) as server:

        def health() -> int | None:
            if not server.port:
                return None
            connection = http.client.HTTPSConnection("localhost", server.port, timeout=10, context=own.trusted())
            try:
                connection.request("GET", "/health")
                return connection.getresponse().status
            except OSError:
                return None
            finally:
                connection.close()

        assert server.poll(health, "https is spoken") == 503  # its workers were not started


@pytest.mark.parametrize(
    ("option", "found"),
    [("--tls-cert=own.pem", "tls-cert without tls-key"), ("--forwarded-allow-ips=*", "forwarded-allow-ips has '*'")],
)
def test_an_option_that_cannot_be_served_is_named_at_the_start(option: str, found: str) -> None:
    with running("gateway", "--port", "0", option) as server:
        assert server.process.wait(60) == 1
        server.poll(lambda: found in "".join(server.log), "the reason is told", 5)
        assert "Traceback" not in "".join(server.log)
