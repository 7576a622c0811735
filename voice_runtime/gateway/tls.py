"""TLS of our own sockets: a certificate is checked before anything else is started."""

import ssl
from pathlib import Path

from voice_runtime.errors import ConfigError


def server_context(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """What our sockets speak; None, when neither is given, is plain HTTP.

    certificate: PEM, with the intermediate ones behind it. key: PEM, without a passphrase.

    Raises:
        ConfigError: one without the other, a file that cannot be read or is not PEM, or a key of another certificate.
    """
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        found = "tls-key without tls-cert" if certificate is None else "tls-cert without tls-key"
        raise ConfigError(f"{found}, expected both or neither")
    for option, file in (("tls-cert", certificate), ("tls-key", key)):
        try:
            file.read_bytes()  # OpenSSL does not tell which of the two it could not read
        except OSError as error:
            raise ConfigError(f"{option} is {file}: {error.strerror}, expected a file that can be read") from error
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, password=lambda: "")  # else OpenSSL asks at the terminal, and waits
    except ssl.SSLError as error:
        found = f"tls-cert {certificate} and tls-key {key}: {error.reason or error}"
        raise ConfigError(f"{found}, expected a certificate and its key in PEM, without a passphrase") from error
    return context
