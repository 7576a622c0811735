"""The browser of the tests: Debian's, with a microphone that needs no hand to allow it."""

import shutil

from tests.support.need import need

FLAGS = [
    "--no-sandbox",
    "--use-fake-ui-for-media-stream",
    "--use-fake-device-for-media-stream",
    "--autoplay-policy=no-user-gesture-required",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


def chromium() -> str:
    """Its program; skips the running test without it."""
    found = shutil.which("chromium")
    need(found is not None, "Debian's chromium")
    assert found is not None
    return found
