"""Finding, checking and converting the weights."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from voice_runtime import assets
from voice_runtime.assets import ASSETS, Asset, State
from voice_runtime.errors import AssetError

CONVERT = "from voice_runtime.assets import thinker_folder; print(thinker_folder(progress=False))"


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(assets.CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def copied_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A whole converted folder that the test may damage."""
    whole = assets.thinker_folder(progress=False)
    copy = tmp_path / "cache" / whole.name
    shutil.copytree(whole, copy)
    monkeypatch.setenv(assets.CACHE_VARIABLE, str(copy.parent))
    return copy


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asset:
    """An asset in an installed package that refuses to be imported."""
    package = tmp_path / "weights_of_a_test"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('an asset is found without an import')")
    (package / "model.bin").write_bytes(b"weights")
    monkeypatch.syspath_prepend(str(tmp_path))
    sha256 = hashlib.sha256(b"weights").hexdigest()
    return Asset("test", "weights-of-a-test", "1.0", "MIT", "weights_of_a_test/model.bin", sha256)


def start_converting(cache: Path) -> subprocess.Popen[str]:
    environment = os.environ | {assets.CACHE_VARIABLE: str(cache)}
    return subprocess.Popen([sys.executable, "-c", CONVERT], env=environment, stdout=subprocess.PIPE, text=True)


def wait_for_unfinished(cache: Path, converting: subprocess.Popen[str]) -> Path:
    """Return the temporary folder as soon as the conversion has begun to write it."""
    while converting.poll() is None:
        for path in cache.glob(f"*{assets.UNFINISHED}*/config.json"):
            return path.parent
    pytest.fail(f"the conversion ended with {converting.returncode} before it was seen to write")


@pytest.mark.parametrize("asset", ASSETS, ids=lambda asset: asset.name)
def test_every_asset_of_the_default_pipeline_is_installed_and_as_published(asset: Asset) -> None:
    assets.verify(asset.name)


def test_every_state_is_ok_with_the_expected_version_and_licence() -> None:
    assets.thinker_folder(progress=False)
    states = assets.check_all()
    assert len(states) == len(ASSETS) + 1
    for state in states:
        assert state.state is State.OK
        assert state.installed_version == state.expected_version
        assert state.size_bytes
        assert state.licence in {"MIT", "Apache-2.0", "BSD-2-Clause"}


def test_an_asset_is_found_without_importing_its_package(published: Asset, tmp_path: Path) -> None:
    assert assets.find(published) == tmp_path / "weights_of_a_test" / "model.bin"
    assets.check(published)


def test_one_changed_bit_in_an_asset_is_found(published: Asset) -> None:
    assets.find(published).write_bytes(b"weightr")
    with pytest.raises(AssetError, match=rf"has sha256 \w+, expected {published.sha256}.*make clean setup"):
        assets.check(published)


def test_a_missing_file_or_package_is_named_with_the_command_that_installs_it(published: Asset) -> None:
    assets.find(published).unlink()
    absent = Asset("absent", "no-such-package", "1.0", "MIT", "no_such_package/model.bin", "")
    for asset in (published, absent):
        with pytest.raises(
            AssetError, match=rf"{asset.path_in_package} is missing.*{asset.package} 1.0.*make clean setup"
        ):
            assets.find(asset)


def test_an_asset_that_does_not_exist_is_a_mistake_of_ours() -> None:
    with pytest.raises(KeyError):
        assets.locate("no-such-asset")


def test_a_second_call_converts_nothing(empty_cache: Path) -> None:
    weights = assets.thinker_folder(progress=False) / "model.safetensors"
    written = weights.stat().st_mtime_ns
    assert assets.thinker_folder(progress=False) == weights.parent
    assert weights.stat().st_mtime_ns == written
    assert sorted(path.name for path in empty_cache.iterdir()) == [assets.THINKER, f"{assets.THINKER}.lock"]


def test_a_killed_conversion_leaves_no_folder_and_the_next_one_clears_up(empty_cache: Path) -> None:
    converting = start_converting(empty_cache)
    unfinished = wait_for_unfinished(empty_cache, converting)
    converting.send_signal(signal.SIGKILL)
    converting.communicate()
    assert unfinished.exists()
    assert not (empty_cache / assets.THINKER).exists()
    assert assets.check_all()[-1].state is State.NOT_CONVERTED
    folder = assets.thinker_folder(progress=False)
    assert (folder / "model.safetensors").exists()
    assert not unfinished.exists()


def test_two_processes_that_convert_at_once_get_one_whole_folder(empty_cache: Path) -> None:
    both = [start_converting(empty_cache) for _ in range(2)]
    answers = {process.communicate()[0].strip() for process in both}
    assert [process.returncode for process in both] == [0, 0]
    assert answers == {str(empty_cache / assets.THINKER)}
    assert list(empty_cache.glob(f"*{assets.UNFINISHED}*")) == []
    assert assets.check_all()[-1].state is State.OK


def test_a_truncated_weight_file_is_refused_with_the_command_that_repairs_it(copied_folder: Path) -> None:
    weights = copied_folder / "model.safetensors"
    os.truncate(weights, weights.stat().st_size - 1)
    with pytest.raises(AssetError, match=r"model.safetensors has sha256 \w+, expected .*doctor --repair"):
        assets.thinker_folder(progress=False)
    assert assets.check_all()[-1].state is State.CORRUPT
    assets.repair(progress=False)
    assert assets.thinker_folder(progress=False) == copied_folder


def test_repair_leaves_a_whole_folder_alone(copied_folder: Path) -> None:
    written = (copied_folder / "model.safetensors").stat().st_mtime_ns
    assets.repair(progress=False)
    assert (copied_folder / "model.safetensors").stat().st_mtime_ns == written


@pytest.mark.parametrize("name", ["tokenizer.json", assets.MANIFEST])
def test_a_folder_without_one_of_its_files_is_refused(copied_folder: Path, name: str) -> None:
    (copied_folder / name).unlink()
    with pytest.raises(AssetError, match=rf"{name} is .*doctor --repair"):
        assets.thinker_folder(progress=False)


@pytest.mark.parametrize("content", ["", "[]", '{"sha256": {}}', '{"gguf_sha256": "", "sha256": 1}'])
def test_a_damaged_manifest_is_refused(copied_folder: Path, content: str) -> None:
    (copied_folder / assets.MANIFEST).write_text(content)
    with pytest.raises(AssetError, match=r"manifest.json is not readable.*doctor --repair"):
        assets.thinker_folder(progress=False)


def test_a_folder_that_came_from_another_gguf_file_is_refused(copied_folder: Path) -> None:
    manifest = copied_folder / assets.MANIFEST
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"gguf_sha256": "another"}))
    with pytest.raises(AssetError, match=rf"sha256 another, expected {assets.GGUF.sha256}"):
        assets.thinker_folder(progress=False)
