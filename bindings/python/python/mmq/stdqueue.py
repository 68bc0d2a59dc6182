"""`queue.Queue` on disk: the same calls, and what was put in survives the process.

>>> from mmq.stdqueue import Queue
>>> with Queue(path) as q:
...     q.put({"picture": 7})
>>> with Queue(path) as q:  # the next run of the program
...     q.get(), q.qsize()
({'picture': 7}, 0)
"""

import json
import logging
import threading
import weakref
from time import monotonic
from typing import Any, Callable, Optional

from . import Closed, Empty, Full, Gap
from . import Queue as _Queue

__all__ = ["Empty", "Full", "Queue"]

#: How often a thread that waits for a place looks whether items have expired, in seconds.
_LOOK = 0.5


class Queue:
    """A `queue.Queue` in the directory `path`.

    Items are what `serializer` can write: any object with `dumps` and `loads`, such as the modules
    `json` (the default) and `pickle`. (`pickle` runs what it loads: only for a directory that
    nobody else can write to.) `maxsize` counts items, `max_bytes` bytes of disk; at both `put`
    waits. Other options are those of `mmq.Queue`.

    `get` takes: an item whose work a kill interrupts does not come again. Work that must not be
    lost wants `mmq.Queue.consumer`. Items that will never come (`mmq.Gap`) go to `on_gap`; by
    default the logger "mmq" warns of them.
    """

    def __init__(
        self,
        path: Any,
        maxsize: int = 0,
        *,
        serializer: Any = json,
        on_gap: Optional[Callable[[Gap], object]] = None,
        on_full: Any = "wait",
        **options: Any,
    ) -> None:
        self.maxsize = maxsize
        self._serializer = serializer
        self._on_gap = on_gap or _warn
        self._waits = on_full not in ("reject", "drop-oldest")
        self._changed = threading.Condition()
        #: Items that threads are putting in now.
        self._coming = 0
        self._unfinished = 0
        # Else queue and callback would keep each other, and the queue stay open.
        missing = weakref.WeakMethod(self._missing)

        def tell(gap: Gap) -> None:
            told = missing()
            if told is not None:
                told(gap)

        self._queue = _Queue(path, on_gap=tell, on_full=on_full, **options)
        try:
            # This makes the consumer, which is told from now on what it misses.
            self._queue.peek()
        except Empty:
            pass
        # As if this run had put in what is there.
        self._unfinished = len(self._queue)

    def put(self, item: Any, block: bool = True, timeout: Optional[float] = None) -> None:
        """Puts an item in. While the queue is full it waits, at most `timeout` seconds, and then
        raises `Full`."""
        if timeout is not None and timeout < 0:
            raise ValueError("'timeout' must be a non-negative number")
        written = self._serializer.dumps(item)
        data = written.encode() if isinstance(written, str) else written
        if not block:
            timeout = 0
        ends = None if timeout is None else monotonic() + timeout
        with self._changed:
            if not self._wait_for(self._has_place, timeout):
                raise Full(f"queue {self._queue.path} is full: it has {self.maxsize} items")
            self._coming += 1
            # Before another thread can take it and call `task_done`.
            self._unfinished += 1
        left = None if ends is None or not self._waits else max(0.0, ends - monotonic())
        try:
            self._queue.put(data, timeout=left)
        except BaseException:
            self._finish(1)
            raise
        finally:
            with self._changed:
                self._coming -= 1

    def get(self, block: bool = True, timeout: Optional[float] = None) -> Any:
        """Takes the next item. It waits for one, at most `timeout` seconds, and then raises
        `Empty`."""
        data = self._queue.get(block, timeout)
        if self.maxsize > 0:
            with self._changed:
                self._changed.notify_all()
        return self._serializer.loads(data)

    def put_nowait(self, item: Any) -> None:
        """`put(item, block=False)`."""
        self.put(item, block=False)

    def get_nowait(self) -> Any:
        """`get(block=False)`."""
        return self.get(block=False)

    def task_done(self) -> None:
        """Says that the work on an item that `get` returned is done, for `join`."""
        self._finish(1)

    def join(self) -> None:
        """Waits until `task_done` was called for every item."""
        with self._changed:
            self._wait_for(lambda: self._unfinished == 0, None)

    def qsize(self) -> int:
        """How many items wait."""
        return len(self._queue)

    def empty(self) -> bool:
        """Whether no item waits."""
        return self.qsize() == 0

    def full(self) -> bool:
        """Whether there are `maxsize` items. (Only a `put` can tell whether the disk has room.)"""
        return 0 < self.maxsize <= self.qsize()

    def flush(self) -> None:
        """Makes everything durable: from then on it survives a power cut."""
        self._queue.flush()

    def close(self) -> None:
        """Closes the queue. Waits in other threads end with `mmq.Closed`."""
        self._queue.close()
        with self._changed:
            self._changed.notify_all()

    def __enter__(self) -> "Queue":
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _wait_for(self, is_so: Callable[[], bool], timeout: Optional[float]) -> bool:
        """Waits with the lock; looks now and then, for items expire and nobody is told."""
        ends = None if timeout is None else monotonic() + timeout
        while not is_so():
            if self._queue.closed:
                raise Closed(f"queue {self._queue.path} is closed")
            left = _LOOK if ends is None else min(_LOOK, ends - monotonic())
            if left <= 0:
                return False
            self._changed.wait(left)
        return True

    def _has_place(self) -> bool:
        return self.maxsize <= 0 or self.qsize() + self._coming < self.maxsize

    def _finish(self, items: int) -> None:
        with self._changed:
            if items > self._unfinished:
                raise ValueError("task_done() called too many times")
            self._unfinished -= items
            self._changed.notify_all()

    def _missing(self, gap: Gap) -> None:
        # Nobody will call `task_done` for them. Reserved numbers never were items.
        if gap.cause != "reserved":
            self._finish(min(gap.count, self._unfinished))
        self._on_gap(gap)


def _warn(gap: Gap) -> None:
    logging.getLogger("mmq").warning("%s", gap)
