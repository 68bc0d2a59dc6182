"""mmq: an embedded, durable first-in first-out queue in a directory.

>>> import mmq
>>> with mmq.Queue(path, max_bytes=64 << 20) as q:
...     seq = q.put(b"a message")  # survives the death of the process
...     q.flush()                  # survives a power cut
...     print(seq, q.get())
0 b'a message'
"""

from importlib.metadata import version as _version

from ._errors import (
    BadItem,
    Closed,
    Disconnected,
    Empty,
    Error,
    Expired,
    Forked,
    Full,
    Gap,
    Internal,
    Interrupted,
    InvalidArgument,
    InvalidOption,
    Io,
    Locked,
    MessageTooLarge,
    NotAQueue,
    NotFound,
    NotShared,
    Poisoned,
    Undecided,
    UnsupportedFormat,
)
from ._native import (
    Consumer,
    Deliveries,
    Delivery,
    Handle,
    LookAhead,
    Message,
    Messages,
    Queue,
    Reader,
    ack_many,
    connect,
    open_or_connect,
)
from ._records import ConsumerStats, Origin, Stats

__version__ = _version("mmq-queue")

__all__ = [
    "BadItem",
    "Closed",
    "Consumer",
    "ConsumerStats",
    "Deliveries",
    "Delivery",
    "Disconnected",
    "Empty",
    "Error",
    "Expired",
    "Forked",
    "Full",
    "Gap",
    "Handle",
    "Internal",
    "Interrupted",
    "InvalidArgument",
    "InvalidOption",
    "Io",
    "Locked",
    "LookAhead",
    "Message",
    "MessageTooLarge",
    "Messages",
    "NotAQueue",
    "NotFound",
    "NotShared",
    "Origin",
    "Poisoned",
    "Queue",
    "Reader",
    "Stats",
    "Undecided",
    "UnsupportedFormat",
    "ack_many",
    "connect",
    "open_or_connect",
]
