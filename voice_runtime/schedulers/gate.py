"""When a small batch is worth a short wait. A pure decision: no clock, no queue."""

from dataclasses import dataclass

from voice_runtime.errors import ConfigError

MOST_HOLD_S = 60.0


@dataclass(frozen=True, slots=True)
class BatchGate:
    """Hold a small batch for company, but only while company is really on its way.

    target: requests that make a batch worth running at once; also the largest batch.
    max_hold_s: longest hold, counted from the arrival of the request that has waited longest.

    Raises:
        ConfigError: a setting is not a number of the right kind and range.
    """

    target: int = 2
    max_hold_s: float = 0.006

    def __post_init__(self) -> None:
        if type(self.target) is not int or self.target < 1:
            raise ConfigError(f"gate target is {self.target!r}, expected a whole number of at least 1")
        if type(self.max_hold_s) not in (int, float) or not 0 <= self.max_hold_s <= MOST_HOLD_S:
            raise ConfigError(f"gate max_hold_s is {self.max_hold_s!r}, expected seconds, 0 to {MOST_HOLD_S:.0f}")

    def hold_s(self, *, waiting: int, building: int, oldest_wait_s: float) -> float:
        """Seconds to wait for company before running the batch; 0 means run now.

        waiting: requests in the batch so far. building: requests accepted by the stage and not yet in its inbox.
        """
        if not 0 < waiting < self.target or building <= 0:
            return 0.0
        return max(0.0, self.max_hold_s - oldest_wait_s)
