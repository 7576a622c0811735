"""How the shipped voice was made: text, synthesis, quantiser, talker, vocoder, evaluation. Run by `make voice`."""
