"""Who may connect: Host, Origin and token in all the ways that a page or a stranger may bring them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.clock import Clock
from voice_runtime.errors import ConfigError, PeerError
from voice_runtime.gateway import tokens
from voice_runtime.gateway.auth import PROTECTED, Access, is_loopback

LOCAL = Access("127.0.0.1")
PAGE = "localhost:8000"


def refusal(
    access: Access, path: str = "/health", query: dict[str, str] | None = None, **headers: str | None
) -> str | None:
    """The code with which a request is refused; None when it may pass."""
    given_headers = {name: value for name, value in headers.items() if value is not None}
    try:
        access.check(path, given_headers, query or {})
    except PeerError as error:
        return error.code
    return None


@pytest.mark.parametrize("port", ["", ":8000", ":80", ":65535"])
@pytest.mark.parametrize("name", ["localhost", "LocalHost", "127.0.0.1", "[::1]"])
def test_the_names_of_this_machine_pass_with_any_port(name: str, port: str) -> None:
    assert refusal(LOCAL, host=name + port) is None


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        ":8000",
        "evil.com",
        "evil.com:8000",
        "localhost.evil.com",
        "127.0.0.1.nip.io",
        "localhost.",
        "localhost@evil.com",
        "evil.com@localhost",
        "localhost:8000@evil.com",
        "evil.com#@localhost",
        "localhost/evil.com",
        "localhost?evil.com",
        "localhost#evil.com",
        "evil.com\\@localhost",
        "localhost evil.com",
        " localhost",
        "localhost\n",
        "localhost:",
        "localhost:port",
        "127.0.0.1:80:80",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0.0.0.0",
        "192.168.0.1",
        "::1",
        "[::1",
        "[::1]evil.com",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[v1.x]",
        "[]",
        "lоcalhost",  # a Cyrillic o  # noqa: RUF001
        "localhost\uff0fevil.com",
        "\ud800",
    ],
)
def test_any_other_host_is_refused_on_loopback(host: str | None) -> None:
    assert refusal(LOCAL, host=host) == "bad_host"


def test_the_address_that_we_listen_on_passes() -> None:
    assert refusal(Access("127.0.0.2"), host="127.0.0.2:8000") is None
    assert refusal(LOCAL, host="127.0.0.2:8000") == "bad_host"


def test_off_loopback_we_may_be_called_by_any_name() -> None:
    access = Access("0.0.0.0", "secret")
    assert refusal(access, host="voice.example.com") is None
    assert refusal(access, host="voice.example.com", origin="https://voice.example.com") is None


@pytest.mark.parametrize("host", [PAGE, "127.0.0.1:8000", "[::1]:8000", "localhost"])
@pytest.mark.parametrize("scheme", ["http", "https", "HTTP"])
def test_our_own_page_may_connect(host: str, scheme: str) -> None:
    assert refusal(LOCAL, host=host, origin=f"{scheme}://{host}") is None


def test_a_request_without_an_origin_comes_from_no_page() -> None:
    assert refusal(LOCAL, host=PAGE) is None


@pytest.mark.parametrize(
    "origin",
    [
        "",
        "null",
        "file://",
        "http://",
        "http://evil.com",
        "http://localhost",
        "http://localhost:8001",
        "http://127.0.0.1:8000",
        "http://localhost:8000@evil.com",
        "http://localhost@evil.com",
        "http://evil.com@localhost:8000",
        "http://localhost:8000.evil.com",
        "http://localhost:8000/",
        "http://localhost:8000#evil.com",
        "http://[",
        "http://[::1",
        "localhost:8000",
        "//localhost:8000",
        "ftp://localhost:8000",
        "chrome-extension://localhost:8000",
        "http://localhost:8000 http://evil.com",
        "http://localhost:8000\n",
        "\ud800",
    ],
)
def test_any_other_page_is_refused(origin: str) -> None:
    assert refusal(LOCAL, host=PAGE, origin=origin) == "bad_origin"


def test_a_request_without_host_is_nobody_s_page() -> None:
    access = Access("0.0.0.0", "secret")
    for origin in ("null", "", "http://", "file://"):
        assert refusal(access, origin=origin) == "bad_origin"


@pytest.mark.parametrize("path", ["/v1/pcm", "/v1/anything", "/debug/resources", "/metrics", "/metrics/"])
def test_what_is_protected_needs_the_token_in_the_header_or_the_query(path: str) -> None:
    access = Access("127.0.0.1", "secret")
    assert refusal(access, path, host=PAGE) == "bad_token"
    assert refusal(access, path, host=PAGE, authorization="Bearer secret") is None
    assert refusal(access, path, {"token": "secret"}, host=PAGE) is None
    assert refusal(LOCAL, path, host=PAGE) is None


@pytest.mark.parametrize(
    "given_token", ["", "Secret", "secret ", "secre", "secrets", "sécret", "\ud800", "\x00", "秘密"]
)
def test_a_wrong_token_is_refused_whatever_its_letters(given_token: str) -> None:
    access = Access("127.0.0.1", "secret")
    for authorization, query in ((f"Bearer {given_token}", {}), (given_token, {}), (None, {"token": given_token})):
        assert refusal(access, "/v1/pcm", query, host=PAGE, authorization=authorization) == "bad_token"


@pytest.mark.parametrize("token", ["sécret", "秘密", "\udcff"])
def test_a_token_that_is_not_ascii_is_compared_like_any_other(token: str) -> None:
    access = Access("127.0.0.1", token)
    assert refusal(access, "/v1/pcm", {"token": token}, host=PAGE) is None
    assert refusal(access, "/v1/pcm", {"token": token + "x"}, host=PAGE) == "bad_token"


def test_the_page_and_the_health_need_no_token() -> None:
    access = Access("127.0.0.1", "secret")
    for path in ("/", "/health", "/app.js"):
        assert not path.startswith(PROTECTED)
        assert refusal(access, path, host=PAGE) is None


def test_a_right_token_does_not_excuse_a_wrong_host_or_origin() -> None:
    access = Access("127.0.0.1", "secret")
    right = {"token": "secret"}
    assert refusal(access, "/v1/pcm", right, host="evil.com") == "bad_host"
    assert refusal(access, "/v1/pcm", right, host=PAGE, origin="http://evil.com") == "bad_origin"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.168.0.1", "voice.example.com", "localhost.evil.com"])
@pytest.mark.parametrize("token", [None, ""])
def test_off_loopback_without_a_token_is_refused(host: str, token: str | None) -> None:
    with pytest.raises(ConfigError, match="is not loopback and no token is set, expected VOICE_RUNTIME_TOKEN"):
        Access(host, token)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.0.0.2", "::1"])
def test_loopback_needs_no_token(host: str) -> None:
    assert is_loopback(host)
    assert Access(host).token is None


APP = "https://app.example.org"
SESSION_DOORS = ("/v1/pcm", "/v1/webrtc", "/v1/webrtc/offer", "/v1/webrtc/0123")


def test_a_page_on_the_list_may_use_the_api_and_nothing_else() -> None:
    access = Access("127.0.0.1", origins=frozenset({APP}))
    for path in (*SESSION_DOORS, "/v1/tokens"):
        assert refusal(access, path, host=PAGE, origin=APP) is None
    for path in ("/", "/health", "/debug/resources", "/metrics", "/v1"):
        assert refusal(access, path, host=PAGE, origin=APP) == "bad_origin"


@pytest.mark.parametrize(
    "origin",
    [
        *("http://app.example.org", "https://app.example.org:8443", "https://example.org", "https://APP.example.org"),
        *("https://app.example.org.evil.com", "https://app.example.org/", "null", "", f"{APP} {APP}"),
    ],
)
def test_a_page_that_is_only_like_one_on_the_list_is_refused(origin: str) -> None:
    access = Access("127.0.0.1", origins=frozenset({APP}))
    assert refusal(access, "/v1/pcm", host=PAGE, origin=origin) == "bad_origin"


def test_the_list_takes_nothing_from_our_own_page_and_excuses_no_host_and_no_token() -> None:
    access = Access("127.0.0.1", "secret", frozenset({APP}))
    assert refusal(access, "/", host=PAGE, origin=f"http://{PAGE}") is None
    assert refusal(access, "/v1/pcm", {"token": "secret"}, host="app.example.org", origin=APP) == "bad_host"
    assert refusal(access, "/v1/pcm", host=PAGE, origin=APP) == "bad_token"


def test_a_minted_token_opens_session_doors_until_its_time_is_over_and_no_others() -> None:
    clock = Clock(now_s=1_800_000_000.0)
    access = Access("127.0.0.1", "secret", clock=clock)
    minted = access.mint(60)
    bearer = f"Bearer {minted}"
    for path in SESSION_DOORS:
        assert refusal(access, path, host=PAGE, authorization=bearer) is None
        assert refusal(access, path, {"token": minted}, host=PAGE) is None
    for path in ("/v1/tokens", "/v1/other", "/v1/pcm/", "/v1/webrtcx", "/debug/resources", "/metrics"):
        assert refusal(access, path, host=PAGE, authorization=bearer) == "bad_token"
    clock.now_s += 59.9
    assert refusal(access, "/v1/pcm", host=PAGE, authorization=bearer) is None
    clock.now_s += 0.1
    assert refusal(access, "/v1/pcm", host=PAGE, authorization=bearer) == "bad_token"
    assert refusal(access, "/v1/pcm", host=PAGE, authorization="Bearer secret") is None


def test_a_token_that_has_expired_is_told_so_and_one_that_was_never_ours_is_not() -> None:
    clock = Clock(now_s=1_800_000_000.0)
    access = Access("127.0.0.1", "secret", clock=clock)
    minted = access.mint(60)
    clock.now_s += 90
    headers = {"host": PAGE, "authorization": f"Bearer {minted}"}
    with pytest.raises(PeerError, match="token has expired 30 s ago, expected a newer one"):
        access.check("/v1/pcm", headers, {})
    with pytest.raises(PeerError, match="token is missing or wrong"):
        access.check("/v1/pcm", {**headers, "authorization": f"Bearer {minted[:-1]}"}, {})


def test_tokens_are_minted_with_the_api_key_in_the_header_only() -> None:
    access = Access("127.0.0.1", "secret")
    assert refusal(access, "/v1/tokens", host=PAGE, authorization="Bearer secret") is None
    assert refusal(access, "/v1/tokens", {"token": "secret"}, host=PAGE) == "bad_token"


@pytest.mark.parametrize("token", [None, ""])
def test_without_an_api_key_nothing_is_minted_and_the_key_of_no_word_opens_nothing(token: str | None) -> None:
    with pytest.raises(PeerError, match="expected VOICE_RUNTIME_TOKEN to be set") as refused:
        Access("127.0.0.1", token).mint(60)
    assert refused.value.code == "no_api_key"
    access = Access("127.0.0.1", "secret")
    for key in (b"", tokens.key_of("")):
        forged = tokens.mint(key, 60, access.clock())
        assert refusal(access, "/v1/pcm", {"token": forged}, host=PAGE) == "bad_token"


def test_no_secret_stands_in_what_is_printed_of_an_access() -> None:
    access = Access("127.0.0.1", "s3cr3t")
    assert "s3cr3t" not in repr(access)
    assert str(access._key) not in repr(access)


ACCESSES = {token: (Access("127.0.0.1", token), Access("0.0.0.0", token)) for token in ("secret", "秘密", "\udcff")}


@given(
    host=st.text(max_size=20),
    origin=st.none() | st.text(max_size=20),
    authorization=st.text(),
    token=st.sampled_from(list(ACCESSES)),
)
def test_no_headers_bring_anything_but_a_refusal(host: str, origin: str | None, authorization: str, token: str) -> None:
    local, public = ACCESSES[token]
    code = refusal(local, "/v1/pcm", host=host, origin=origin, authorization=authorization)
    assert code == "bad_host" or host.lower().startswith(("localhost", "127.0.0.1"))
    for prefix in ("http://", "http://["):
        assert refusal(public, "/v1/pcm", host=host, origin=prefix + host, authorization=authorization) in (
            None,
            "bad_origin",
            "bad_token",
        )
