"""Talk to an AI agent that runs on your own machine, and interrupt it in mid-sentence."""
