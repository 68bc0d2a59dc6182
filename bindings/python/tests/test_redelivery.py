import asyncio
import threading
import time

import pytest

import mmq

SOON = 60


def test_a_block_acknowledges_and_an_exception_gives_back(path):
    with mmq.Queue(path) as q:
        workers = q.consumer("w")
        q.put_many([b"a", b"b"])
        with pytest.raises(ZeroDivisionError):
            for job in workers:
                with job:
                    1 / 0
        assert (len(workers), workers.in_flight) == (2, 0)
        done = []
        for job in workers.deliveries(timeout=0):
            with job:
                done.append((job.data, job.seq, job.attempts))
        assert done == [(b"a", 0, 2), (b"b", 1, 1)]
        assert len(workers) == 0


def test_what_was_decided_in_the_block_stays(path):
    with mmq.Queue(path) as q:
        q.put_many([b"a", b"b"])
        with q.receive() as job:
            job.nack(delay=3600)
        with q.receive() as job:
            job.reject()
        with pytest.raises(mmq.Gap) as gap:
            q.receive(timeout=0)
        assert (gap.value.first, gap.value.cause) == (1, "rejected")
        assert len(q) == 1


def test_a_loop_that_forgets_its_jobs_ends_with_an_error(path):
    with mmq.Queue(path) as q:
        q.put_many([b"a", b"b", b"c"])
        seen = []
        with pytest.raises(mmq.Undecided, match="job 0 go, neither acknowledged nor given back"):
            for job in q.consumer("w"):
                seen.append(job.seq)
        assert seen == [0, 1]


def test_jobs_may_be_decided_elsewhere_in_any_order(path):
    with mmq.Queue(path) as q:
        q.put_many([b"%d" % number for number in range(10)])
        workers = q.consumer("w")
        jobs = list(workers.deliveries(timeout=0))
        assert workers.in_flight == 10
        mmq.ack_many(jobs[5:])
        for job in reversed(jobs[:5]):
            job.nack()
        assert len(workers) == 5
        assert sorted(job.seq for job in workers.receive_many(100)) == list(range(5))


def test_a_lease_ends_and_can_be_extended(path):
    with mmq.Queue(path) as q:
        q.set_redelivery(lease=0.02)
        q.put(b"a job")
        slow = q.receive()
        again = q.receive(timeout=60)
        assert again.attempts == 2
        with pytest.raises(mmq.Expired):
            slow.extend(60)
        with pytest.raises(mmq.Expired):
            slow.ack()
        again.nack()
        kept = q.receive(timeout=60)
        kept.extend(3600)
        with pytest.raises(mmq.Empty):
            q.receive(timeout=0.1)
        kept.ack()


def test_dead_letters_say_where_they_come_from(path, tmp_path):
    with mmq.Queue(tmp_path / "failed") as failed, mmq.Queue(path) as q:
        workers = q.consumer("w")
        workers.set_redelivery(max_attempts=2, backoff=(0.001, 1), dead_letters=failed)
        q.put(b"never works")
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                with workers.receive(timeout=60):
                    1 / 0
        letter = failed.receive(timeout=60)
        assert letter.data == b"never works"
        assert letter.origin == mmq.Origin(queue_id=q.id, seq=0, attempts=2)
        assert next(failed.consumer("look").look_ahead()).origin.seq == 0


def test_a_queue_of_dead_letters_may_be_closed_first(path, tmp_path):
    failed = mmq.Queue(tmp_path / "failed")
    q = mmq.Queue(path)
    q.set_redelivery(max_attempts=1, dead_letters=failed)
    failed.close()
    q.put(b"no job")
    q.receive().nack()
    q.close()
    with mmq.Queue(tmp_path / "failed") as failed:
        assert failed.get(timeout=60) == b"no job"


@pytest.mark.parametrize("read", ["get", "receive", "messages", "deliveries"])
@pytest.mark.parametrize("name", [None, "named"])
def test_a_close_of_a_queue_of_dead_letters_ends_a_wait(path, tmp_path, name, read):
    q, failed = mmq.Queue(path), mmq.Queue(tmp_path / "failed")
    q.set_redelivery(max_attempts=1, dead_letters=failed)
    reader = failed.consumer(name) if name else failed
    answers = []

    def wait():
        try:
            answers.append(list(getattr(reader, read)(timeout=None)))
        except mmq.Closed:
            answers.append([])

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    time.sleep(0.1)
    failed.close()
    thread.join(SOON)
    assert answers == [[]]
    for call in (reader.get, lambda: reader.fork("another")):
        with pytest.raises(mmq.Closed):
            call()
    # It is locked, and takes letters, until the other queue is closed.
    with pytest.raises(mmq.Locked):
        mmq.Queue(tmp_path / "failed")
    q.put(b"no job")
    q.receive().reject()
    q.close()
    with mmq.Queue(tmp_path / "failed") as failed:
        assert failed.get() == b"no job"


@pytest.mark.parametrize("put", ["put", "put_many"])
def test_a_close_of_a_queue_of_dead_letters_ends_a_wait_for_room(path, tmp_path, put):
    q = mmq.Queue(path)
    failed = mmq.Queue(tmp_path / "failed", max_bytes=1 << 20, on_full="wait")
    q.set_redelivery(max_attempts=1, dead_letters=failed)
    with pytest.raises(mmq.Full):
        while True:
            failed.put(b"x" * 10_000, timeout=0)
    message = b"x" * 10_000
    ended = []

    def wait():
        try:
            getattr(failed, put)(message if put == "put" else [message])
        except mmq.Error as error:
            ended.append(type(error))

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    time.sleep(0.1)
    failed.close()
    thread.join(SOON)
    assert ended == [mmq.Closed]
    q.close()


def test_a_close_of_a_queue_of_dead_letters_ends_waits_of_tasks(path, tmp_path):
    async def main():
        q, failed = mmq.Queue(path), mmq.Queue(tmp_path / "failed")
        q.set_redelivery(max_attempts=1, dead_letters=failed)
        named = failed.consumer("named")
        failed.put(b"a letter")
        job = named.receive()
        assert failed.get() == b"a letter"

        async def loop():
            return [job async for job in named]

        waits = [asyncio.ensure_future(wait) for wait in (failed.get_async(), loop())]
        await asyncio.sleep(0.1)
        failed.close()
        # This clears the consumer's descriptor.
        job.ack()
        closed, jobs = await asyncio.wait_for(asyncio.gather(*waits, return_exceptions=True), SOON)
        assert isinstance(closed, mmq.Closed) and jobs == []
        q.close()

    asyncio.run(main())


def test_attempts_count_over_openings(path):
    for attempt in range(1, 4):
        with mmq.Queue(path) as q:
            q.set_redelivery(max_attempts=9)
            if attempt == 1:
                q.put(b"a job")
            job = q.receive()
            assert job.attempts == attempt
            job.nack()


def test_at_most_so_many_in_flight(path):
    with mmq.Queue(path) as q:
        q.set_max_in_flight(1)
        q.put_many([b"a", b"b"])
        job = q.receive()
        with pytest.raises(mmq.Empty):
            q.receive(timeout=0)
        q.set_max_in_flight(None)
        assert q.receive(timeout=0).seq == 1
        job.ack()
