"""Talk to an AI agent that runs on your own machine, and interrupt it in mid-sentence."""

import os

# ONNX Runtime 1.32 starts a telemetry thread when it is imported: nothing here reports to anybody.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
