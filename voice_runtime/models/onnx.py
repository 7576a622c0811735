"""The one way an ONNX model is opened here. Knows nothing of what the model does."""

from pathlib import Path

import onnxruntime

ERRORS_ONLY = 3


def session(path: Path) -> onnxruntime.InferenceSession:
    """Open `path` (.onnx or .ort) on one CPU thread that sleeps while it waits.

    The thread that calls `run` is the only one that computes, so a worker's share of the cores is what its own threads
    say, and spinning would take the core from the other workers.

    Raises onnxruntime's NoSuchFile or InvalidProtobuf when the file is missing or damaged: check it with
    `voice_runtime.assets.verify` first.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = ERRORS_ONLY
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
