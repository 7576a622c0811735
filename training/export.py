"""Write the shipped weights: python -m training.export WORK. fp16 safetensors, sizes in the file's metadata."""

import argparse
from pathlib import Path

import torch
from safetensors.torch import save_file

from voice_runtime.models import code2wav
from voice_runtime.models.code2wav import Code2Wav, Code2WavConfig
from voice_runtime.models.talker import Talker, TalkerConfig

TARGET = Path(__file__).parent.parent / "voice_runtime" / "weights" / "voice"


def export(work: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    both = {"talker": Talker(TalkerConfig()).metadata(), "code2wav": code2wav.metadata(Code2WavConfig())}
    for name, metadata in both.items():
        checkpoint = work / name / "last.pt"
        if not checkpoint.exists():
            print(f"{checkpoint} is missing: {name} is left as it is")
            continue
        stored = torch.load(checkpoint, weights_only=True)
        weights = {key: value.half().contiguous() for key, value in stored["module"].items()}
        path = target / f"{name}.safetensors"
        save_file(weights, path, metadata | {"step": str(stored["step"])})
        path.chmod(0o644)
        print(f"{path.name}: step {stored['step']}, {path.stat().st_size / 1e6:.1f} MB")


def load(folder: Path = TARGET) -> tuple[Talker, Code2Wav]:
    return Talker.load(folder / "talker.safetensors"), Code2Wav.load(folder / "code2wav.safetensors")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("work", type=Path)
    arguments.add_argument("--target", type=Path, default=TARGET)
    options = arguments.parse_args()
    export(options.work, options.target)


if __name__ == "__main__":
    main()
