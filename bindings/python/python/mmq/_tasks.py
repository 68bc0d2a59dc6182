"""Reads in tasks of asyncio, over the reader's descriptor."""

import asyncio
import os
from typing import Any, AsyncIterator, Callable, Optional

from ._errors import Closed, Empty

#: How often a task that waits looks whether the queue was closed, in seconds. (An acknowledgement
#: may clear the descriptor behind a close of a queue that stays open for another's dead letters.)
_LOOK = 1.0


async def read(reader: Any, take: Callable[[], Any]) -> Any:
    """Returns what `take` returns once it no longer raises `Empty`."""
    while True:
        try:
            return take()
        except Empty:
            await _ready(reader.fileno())


async def each(
    reader: Any, take: Callable[[], Any], timeout: Optional[float]
) -> AsyncIterator[Any]:
    """Yields what `take` returns, until the queue is closed or nothing comes in time."""
    while True:
        # Other tasks run meanwhile. Nothing is taken yet, so that a cancel here loses nothing.
        await asyncio.sleep(0)
        try:
            got = take()
        except Closed:
            return
        except Empty:
            if timeout is not None and timeout <= 0:
                return
            try:
                got = await asyncio.wait_for(read(reader, take), timeout)
            except (Closed, asyncio.TimeoutError):
                return
        yield got


async def _ready(descriptor: int) -> None:
    """Waits until the descriptor is readable, or it is time to look."""
    loop = asyncio.get_running_loop()
    woken = loop.create_future()
    # A duplicate for each task: a loop has one callback for a descriptor.
    own = os.dup(descriptor)

    def wake() -> None:
        if not woken.done():
            woken.set_result(None)

    loop.add_reader(own, wake)
    look = loop.call_later(_LOOK, wake)
    try:
        await woken
    finally:
        look.cancel()
        loop.remove_reader(own)
        os.close(own)
