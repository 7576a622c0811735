"""Prints the tokens of a request without a seed in a batch with a seeded one, from a process of its own.

The seeded one is there first and goes on longer: every draw of the other is in its company.
"""

import sys
from pathlib import Path

from tests.support.ar import outcomes
from tests.support.tiny_llama import tiny_scheduler
from voice_runtime.runner.generate import Generate
from voice_runtime.schedulers.messages import NewRequest

if __name__ == "__main__":
    scheduler = tiny_scheduler(Path(sys.argv[1]))
    scheduler.start()
    for request_id, seed, tokens in (("00000001", 5, 30), (sys.argv[2], None, 16)):
        generate = Generate(list(range(20)), tokens, temperature=1.2, seed=seed)
        scheduler.inbox.put(NewRequest(request_id, generate))
    print(outcomes(scheduler, ["00000001", sys.argv[2]])[sys.argv[2]][0])
    scheduler.stop()
