"""What `stats`, `consumer_stats` and `origin` return. Times are in seconds."""

from typing import NamedTuple, Optional


class Origin(NamedTuple):
    """Where a dead letter comes from."""

    queue_id: bytes
    seq: int
    #: How often it was handed out there in vain.
    attempts: int


class Stats(NamedTuple):
    """Figures of a queue. Totals count from this opening on."""

    messages: int
    bytes: int
    segments: int
    spare_segments: int
    mapped_arenas: int
    mapped_bytes: int
    disk_bytes: int
    next_seq: int
    oldest_seq: int
    oldest_age: Optional[float]
    durable_seq: int
    enqueued: int
    dequeued: int
    consumers: int
    gaps: int
    lost_messages: int
    lost_damaged: int
    lost_unflushed: int
    lost_dropped: int
    lost_expired: int
    lost_rejected: int
    reserved_numbers: int
    flushes: int
    flush_time: float
    longest_flush: float
    refused: int
    wait_time: float
    dropped: int
    expired: int
    rejected: int
    unclaimed: int
    last_flush_error: Optional[str]


class ConsumerStats(NamedTuple):
    """Figures of one consumer."""

    name: str
    next_seq: int
    messages: int
    bytes: int
    in_flight: int
    oldest_age: Optional[float]
    holds_oldest: bool
    kept: int
    #: In seconds since 1970.
    acknowledged_at: Optional[float]
