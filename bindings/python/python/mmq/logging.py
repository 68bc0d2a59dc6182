"""A handler of the module `logging` that keeps records in a queue until somebody sends them on.

>>> import logging
>>> from mmq.logging import SpoolHandler, to_record
>>> logger = logging.getLogger("an example")
>>> handler = SpoolHandler(path)
>>> logger.addHandler(handler)
>>> logger.warning("disk %s is nearly full", "sda")
>>> to_record(handler.queue.get()).getMessage()  # in a thread that sends, or the next run
'disk sda is nearly full'
>>> logger.removeHandler(handler)
>>> handler.close()
"""

import contextlib
import json
import logging
import os
from typing import Any, Dict, Union

from . import BadItem, Forked, Queue

__all__ = ["SpoolHandler", "to_record"]

#: What of a record does not go into the queue as it is.
_WRITTEN_OTHERWISE = ("msg", "args", "exc_info")


class SpoolHandler(logging.Handler):
    """Puts each record into a queue, as JSON; with a formatter, as the text that it makes.

    `queue` is a `mmq.Queue` that is open, or a directory, which it opens with these options: by
    default 64 MiB of disk, and the oldest records go when they are full. `close` closes a queue
    that the handler opened.
    """

    def __init__(
        self,
        queue: Union[Queue, str, "os.PathLike[str]"],
        level: int = logging.NOTSET,
        **options: Any,
    ) -> None:
        super().__init__(level)
        self._is_own = not isinstance(queue, Queue)
        if isinstance(queue, Queue):
            if options:
                raise TypeError("options are for a directory: this queue is open already")
            self.queue = queue
            return
        defaults: Dict[str, Any] = {"max_bytes": 64 << 20, "on_full": "drop-oldest"}
        self.queue = Queue(queue, **{**defaults, **options})

    def emit(self, record: logging.LogRecord) -> None:
        """Puts the record in. A record that cannot go in goes to `handleError`."""
        try:
            self.queue.put(self._written(record).encode())
        except Exception:
            self.handleError(record)

    def _written(self, record: logging.LogRecord) -> str:
        if self.formatter is not None:
            return self.format(record)
        fields = {
            name: value for name, value in vars(record).items() if name not in _WRITTEN_OTHERWISE
        }
        fields["msg"] = record.getMessage()
        if record.exc_info:
            fields["exc_text"] = logging.Formatter().formatException(record.exc_info)
        return json.dumps(fields, default=str)

    def flush(self) -> None:
        """Makes all records durable."""
        if not self.queue.closed:
            # A child of a fork has nothing in it: its end calls this.
            with contextlib.suppress(Forked):
                self.queue.flush()

    def close(self) -> None:
        """Closes the queue, if the handler opened it."""
        if self._is_own:
            with contextlib.suppress(Forked):
                self.queue.close()
        super().close()


def to_record(data: bytes) -> logging.LogRecord:
    """Returns the record that a handler without a formatter put in, or raises `mmq.BadItem`."""
    try:
        return logging.makeLogRecord(json.loads(data))
    except Exception as error:
        raise BadItem(f"this is no record: {error!r}", data=data) from error
