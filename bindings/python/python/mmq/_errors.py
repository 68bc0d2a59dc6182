"""The exceptions. Each has the number of its status in C, `mmq.Error.status`."""

import queue
from typing import Any, Optional


class Error(Exception):
    """What every call of mmq can raise. Its text is complete: the queue, the limit, the cause."""

    status = 31
    in_doubt = False

    def __init__(self, text: str, **details: Any) -> None:
        super().__init__(text)
        for name, value in details.items():
            setattr(self, name, value)


class Empty(Error, queue.Empty):
    """There is no message, or none came in time."""

    status = 1


class Gap(Error):
    """Messages `first` to `last` will never come. Told once; the next read goes on behind them."""

    status = 4
    first: int
    last: int
    #: "damaged", "unflushed", "dropped", "expired", "reserved" or "rejected".
    cause: str

    @property
    def count(self) -> int:
        """How many numbers are missing."""
        return self.last - self.first + 1


class InvalidArgument(Error, ValueError):
    """An argument has an invalid value, or the call is not allowed here."""

    status = 16


class Undecided(InvalidArgument):
    """A loop let a delivery go that was neither acknowledged nor given back."""


class BadItem(InvalidArgument):
    """An item or a record cannot be read. It does not come again: `data` is all that is left."""

    data: bytes


class InvalidOption(InvalidArgument):
    """An option has an invalid value."""

    status = 17


class MessageTooLarge(Error, ValueError):
    """The message is longer than the queue, or any queue, can hold."""

    status = 18


class Full(Error, queue.Full):
    """There is no room, by a limit or on the disk. Nothing was changed."""

    status = 19


class Locked(Error):
    """The queue is open already, here or in the process `pid`."""

    status = 20
    pid: int


class NotFound(Error, LookupError):
    """There is no such queue, consumer or message."""

    status = 21


class UnsupportedFormat(Error):
    """A later version of mmq wrote the files, which stay unchanged."""

    status = 22


class Io(Error, OSError):
    """A system call failed: see `errno` and `filename`."""

    status = 23
    errno: Optional[int]
    filename: Any

    def __str__(self) -> str:
        return str(self.args[0])


class Poisoned(Error):
    """An earlier flush failed: open the queue again to write."""

    status = 24


class Closed(Error):
    """The queue was closed, before the call or while it waited."""

    status = 25


class Forked(Error):
    """The queue was opened before a fork, and this is the child: it must open it itself."""

    status = 26


class Expired(Error):
    """The lease of the delivery had ended: the message comes again."""

    status = 27


class Interrupted(Error):
    """`Queue.interrupt` ended the wait."""

    status = 28


class NotAQueue(Error):
    """The directory holds files, but none of a queue. It is unchanged."""

    status = 29


class Internal(Error):
    """A bug in mmq: please report the text."""


class NotShared(Error):
    """No owner of the queue answers."""

    status = 32


class Disconnected(Error, ConnectionError):
    """The connection to the owner has ended. `in_doubt`: the call may have been done."""

    status = 33


for _class in list(globals().values()):
    if isinstance(_class, type) and issubclass(_class, Error):
        _class.__module__ = "mmq"
