"""The doctor's report."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from voice_runtime import assets
from voice_runtime.doctor import report


def printed() -> tuple[bool, str]:
    text = io.StringIO()
    well = report(Console(file=text, width=200))
    return well, text.getvalue()


def test_the_report_names_every_asset_its_package_and_the_machine() -> None:
    assets.thinker_folder(progress=False)
    well, text = printed()
    assert well
    for asset in assets.ASSETS:
        assert asset.name in text
        assert asset.package in text
    for fact in ("Cores", "Memory", "GPU", "Python"):
        assert fact in text


def test_a_model_that_is_not_converted_yet_is_well_and_said_to_be_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(assets.CACHE_VARIABLE, str(tmp_path))
    well, text = printed()
    assert well
    assert "not converted" in text
    assert "doctor --repair" in text


def test_a_damaged_folder_is_not_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / assets.THINKER).mkdir()
    monkeypatch.setenv(assets.CACHE_VARIABLE, str(tmp_path))
    well, text = printed()
    assert not well
    assert "corrupt" in text
