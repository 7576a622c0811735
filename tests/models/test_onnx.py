"""How models are opened."""

from voice_runtime.assets import locate
from voice_runtime.models.onnx import session


def test_a_session_computes_on_one_thread_of_the_cpu_and_never_spins() -> None:
    opened = session(locate("silero-vad"))
    options = opened.get_session_options()
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (1, 1)
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert opened.get_providers() == ["CPUExecutionProvider"]
