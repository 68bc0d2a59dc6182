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
from time import monotonic
from typing import Any, Callable, Optional, Set

from . import BadItem, Closed, Empty, Full, Gap
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
        self._waits = on_full not in ("reject", "drop-oldest")
        # A signal's handler (Ctrl-C) may raise behind any call. `with` the lock itself leaves it
        # then; `with` the condition, whose code is Python's, may keep it for ever.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        #: One object for each item that a thread is putting in now.
        self._coming: Set[object] = set()
        #: Items that `get` returned, and `task_done` was not called for.
        self._unfinished = 0
        self._queue = _Queue(path, on_gap=on_gap or _warn, on_full=on_full, **options)

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
        place = object()
        try:
            with self._lock:
                if not self._wait_for(self._has_place, timeout):
                    raise Full(f"queue {self._queue.path} is full: it has {self.maxsize} items")
                self._coming.add(place)
            left = None if ends is None or not self._waits else max(0.0, ends - monotonic())
            self._queue.put(data, timeout=left)
        finally:
            self._coming.discard(place)

    def get(self, block: bool = True, timeout: Optional[float] = None) -> Any:
        """Takes the next item. It waits for one, at most `timeout` seconds, and then raises
        `Empty`. For an item that the serializer cannot read it raises `mmq.BadItem`, which has the
        bytes; `task_done` is not called for it."""
        # An exception before the ack gives the item back.
        with self._queue.receive(timeout if block else 0) as job:
            try:
                item, bad = self._serializer.loads(job.data), None
            except Exception as error:
                try:
                    self._serializer.loads(job.data)
                except Exception:
                    item, bad = None, error
                else:
                    raise  # Not the item's: a signal's handler raised it.
            with self._lock:
                # `join` sees it in the queue, or counted.
                job.ack()
                self._unfinished += bad is None
                self._changed.notify_all()
        if bad is not None:
            text = f"queue {self._queue.path}: item {job.seq} cannot be read: {bad!r}"
            raise BadItem(text, data=job.data) from bad
        return item

    def put_nowait(self, item: Any) -> None:
        """`put(item, block=False)`."""
        self.put(item, block=False)

    def get_nowait(self) -> Any:
        """`get(block=False)`."""
        return self.get(block=False)

    def task_done(self) -> None:
        """Says that the work on an item that `get` returned is done, for `join`."""
        with self._lock:
            if self._unfinished == 0:
                raise ValueError("task_done() called too many times")
            self._unfinished -= 1
            self._changed.notify_all()

    def join(self) -> None:
        """Waits until every item was taken, and `task_done` called for it."""
        with self._lock:
            self._wait_for(lambda: self._unfinished == 0 and self.empty(), None)

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
        with self._lock:
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
        # In this order: what comes while this looks is counted twice rather than not at all.
        return self.maxsize <= 0 or len(self._coming) + self.qsize() < self.maxsize


def _warn(gap: Gap) -> None:
    logging.getLogger("mmq").warning("%s", gap)
