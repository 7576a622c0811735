"""What is counted, for Prometheus. Names follow its conventions: base units, _total for counters."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from voice_runtime.session.events import ReplyDone, Timing

BUCKETS_S = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0)


class Metrics:
    """One gateway's counters, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.sessions = Gauge("voice_sessions", "Open sessions", registry=self.registry)
        self.refused = Counter("voice_refused_total", "Refused connections", ["code"], registry=self.registry)
        self._replies = Counter("voice_replies_total", "Ended replies", ["status"], registry=self.registry)
        self._underruns = Counter("voice_underruns_total", "Times that agent audio came late", registry=self.registry)
        self.late_frames = Counter(
            "voice_late_frames_total", "WebRTC frames sent when the next one was due", registry=self.registry
        )
        self._latency = Histogram(
            "voice_turn_seconds",
            "End of the caller's speech to the first agent audio, by stage",
            ["stage"],
            buckets=BUCKETS_S,
            registry=self.registry,
        )
        self._tokens = Counter("voice_thinker_tokens_total", "Thinker tokens", ["kind"], registry=self.registry)

    def reply_done(self, done: ReplyDone, timing: Timing | None) -> None:
        self._replies.labels(done.status).inc()
        if timing is None:
            return
        self._underruns.inc(timing.underruns)
        for stage, ms in timing.ms.items():
            self._latency.labels(stage).observe(ms / 1000)
        for kind in ("prompt", "cached", "completion"):
            self._tokens.labels(kind).inc(timing.tokens.get(f"{kind}_tokens", 0))
