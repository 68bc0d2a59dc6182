import asyncio

import pytest

import mmq


def test_a_task_waits_for_a_message(path):
    async def main():
        with mmq.Queue(path) as q:
            waiting = asyncio.ensure_future(q.get_async())
            await asyncio.sleep(0)
            assert not waiting.done()
            q.put(b"a message")
            assert await waiting == b"a message"

    asyncio.run(main())


def test_many_tasks_share_a_consumer(path):
    async def main():
        with mmq.Queue(path) as q:
            workers = q.consumer("w")
            done = []

            async def work():
                async for job in workers:
                    with job:
                        done.append(job.seq)
                        await asyncio.sleep(0)

            tasks = [asyncio.ensure_future(work()) for _ in range(5)]
            for number in range(200):
                q.put(b"%d" % number)
                if number % 10 == 0:
                    await asyncio.sleep(0)
            while len(done) < 200:
                await asyncio.sleep(0.001)
            assert sorted(done) == list(range(200)) and len(workers) == 0
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())


def test_async_for_takes_messages_until_the_close(path):
    async def main():
        q = mmq.Queue(path)
        q.put_many([b"a", b"b"])
        taken = []

        async def take():
            async for message in q:
                taken.append(message)

        task = asyncio.ensure_future(take())
        while len(taken) < 2:
            await asyncio.sleep(0)
        q.close()
        await task
        assert taken == [b"a", b"b"]

    asyncio.run(main())


def test_async_for_ends_after_a_timeout(path):
    async def main():
        with mmq.Queue(path) as q:
            q.put(b"a")
            assert [message async for message in q.messages(timeout=0.01)] == [b"a"]

    asyncio.run(main())


def test_a_cancelled_wait_takes_nothing(path):
    async def main():
        with mmq.Queue(path) as q:
            for _ in range(3):
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(q.get_async(), 0.005)
            q.put(b"a message")
            assert len(q) == 1
            with await q.receive_async() as job:
                assert job.data == b"a message"

    asyncio.run(main())


def test_a_raised_block_gives_back_in_a_task(path):
    async def main():
        with mmq.Queue(path) as q:
            q.put(b"a")
            with pytest.raises(KeyError):
                async for job in q.deliveries():
                    with job:
                        raise KeyError
            assert len(q) == 1

    asyncio.run(main())
