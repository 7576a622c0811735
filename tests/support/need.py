"""What a test needs from its machine: a skip on a laptop, a failure where everything must run."""

import os

import pytest


def need(condition: bool, what: str) -> None:
    """Skip the running test when `condition` is false; fail it when VOICE_RUNTIME_REQUIRE_ALL is set."""
    if condition:
        return
    if os.environ.get("VOICE_RUNTIME_REQUIRE_ALL"):
        pytest.fail(f"this test needs {what}")
    pytest.skip(f"this test needs {what}")
