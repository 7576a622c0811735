"""Checks that need an engine of other settings: each file is run in a process of its own, see test_own_process.py."""

from voice_runtime.sglang_backend import cpu_compat

cpu_compat.prepare()
