"""What mypy --strict checks the types by. It is not run."""

import asyncio
from typing import List

import mmq
from mmq import stdqueue
from mmq.logging import SpoolHandler, to_record


def work(told: List[mmq.Gap]) -> None:
    with mmq.Queue("spool", max_bytes=1 << 20, on_full="drop-oldest", on_gap=told.append) as q:
        seq: int = q.put(memoryview(b"a message"))
        numbers: range = q.put_many([b"a", bytearray(b"b")])
        first: bytes = q.get(timeout=1.5)
        for message in q.messages(timeout=0):
            print(message.decode(), seq, numbers, first)
        workers = q.consumer("workers", start="oldest")
        workers.set_redelivery(lease=60, backoff=(1, 600), max_attempts=5, dead_letters=q)
        for job in workers:
            with job as held:
                print(held.data.decode(), job.attempts + 1, job.origin and job.origin.seq + 1)
        print(q.stats().messages + 1, [stats.name for stats in q.consumer_stats()])


async def task(q: mmq.Queue) -> bytes:
    async for message in q:
        print(message.decode())
    with await q.receive_async() as job:
        return job.data


def others() -> None:
    with mmq.open_or_connect("spool") as handle, stdqueue.Queue("items", 10) as items:
        handle.consumer().get()
        items.put({"a": 1}, timeout=1)
        print(to_record(b"{}").getMessage(), SpoolHandler("log").queue)
    try:
        asyncio.run(task(mmq.Queue("spool")))
    except mmq.Locked as locked:
        print(locked.pid + 1, locked.status + 1)
    except mmq.Gap as gap:
        print(gap.count + gap.first, gap.cause.upper())
