"""What somebody found who used the package for the first time."""

import asyncio
import gc
import json
import logging
import os
import subprocess
import sys
import threading
import time

import mmq
import pytest
from mmq import stdqueue
from mmq.logging import SpoolHandler, to_record

SOON = 60


def test_a_forked_child_closes_while_threads_of_the_parent_read(path):
    q = mmq.Queue(path)
    ends = threading.Event()

    def reads():
        while not ends.is_set():
            try:
                q.get_nowait()
            except mmq.Empty:
                pass

    readers = [threading.Thread(target=reads) for _ in range(2)]
    for reader in readers:
        reader.start()
    for _ in range(200):
        child = os.fork()
        if child == 0:
            try:
                q.close()
            except mmq.Forked:
                pass
            os._exit(0)
        until = time.monotonic() + SOON
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            assert time.monotonic() < until, "the child hangs"
            time.sleep(0.0005)
    ends.set()
    for reader in readers:
        reader.join()
    q.close()


def test_a_close_in_the_midst_of_a_call_returns(path):
    # As by a signal's handler or a finalizer: in the first code of Python that the call runs.
    program = """
import sys, mmq

def close(frame, event, _):
    if event == "call" and frame.f_code.co_name != "<module>":
        sys.setprofile(None)
        q.close()

for number, call in enumerate(sys.argv[2:]):
    q = mmq.Queue(f"{sys.argv[1]}-{number}", max_bytes=1 << 20)
    q.consumer("w")
    print(call, flush=True)
    sys.setprofile(close)
    try:
        eval(call)
    except mmq.Error as error:
        print("  raises", type(error).__name__)
    assert q.closed, call
"""
    calls = {
        "q.stats()": None,
        "q.consumer_stats()": None,
        "q.put(bytes(2 << 20))": "MessageTooLarge",
        "q.put(b'', timeout=1)": "InvalidArgument",
        "q.put_many([bytes(2 << 20)])": "MessageTooLarge",
        "q.wait_durable(7)": "NotFound",
        "q.consumer('')": "InvalidArgument",
        "q.remove_consumer('none')": "NotFound",
        "q.get_nowait()": "Empty",
        "q.receive(timeout=0)": "Empty",
        "q.seek(7)": "NotFound",
        "q.fork('')": "InvalidArgument",
    }
    command = [sys.executable, "-c", program, path, *calls]
    said = subprocess.run(command, stdout=subprocess.PIPE, timeout=SOON).stdout.decode()
    raises = lambda error: f"  raises {error}\n" if error else ""
    assert said == "".join(f"{call}\n{raises(error)}" for call, error in calls.items())


def test_a_second_close_waits_for_the_first(path):
    for open_queue in (mmq.Queue, mmq.open_or_connect):
        q = open_queue(path)
        q.put_many([bytes(12 << 20)] * 4)
        first = threading.Thread(target=q.close)
        first.start()
        with pytest.raises(mmq.Closed):
            while True:
                q.stats()
        q.close()
        open_queue(path).close()
        first.join()


def test_a_second_close_has_the_outcome_of_the_first(path):
    for open_queue in (mmq.Queue, mmq.open_or_connect):
        q = open_queue(path)
        q.put(b"a")
        os.rename(f"{path}/index", f"{path}/away")
        errors = []
        for _ in range(2):
            with pytest.raises(mmq.Error) as raised:
                q.close()
            errors.append(str(raised.value))
        assert errors[0] == errors[1]
        os.rename(f"{path}/away", f"{path}/index")


def test_loops_over_deliveries_end_at_a_close(path):
    async def loops():
        q = mmq.Queue(path)
        workers = q.consumer("workers")

        async def loop():
            async for job in workers:
                job.ack()

        task = asyncio.ensure_future(loop())
        await asyncio.sleep(0.05)
        q.close()
        await asyncio.wait_for(task, SOON)

    asyncio.run(loops())


def test_no_time_is_time_for_what_is_there(path):
    async def all_of(loop):
        return [each async for each in loop]

    with mmq.Queue(path) as q:
        q.put_many([b"a", b"b"])
        jobs = asyncio.run(all_of(q.consumer("workers").deliveries(timeout=0)))
        assert [job.data for job in jobs] == [b"a", b"b"]
        mmq.ack_many(jobs)
        assert asyncio.run(all_of(q.messages(timeout=0))) == [b"a", b"b"]


def test_a_standard_queue_that_nobody_holds_is_closed(path):
    s = stdqueue.Queue(path)
    s.put(1)
    del s
    gc.collect()
    with stdqueue.Queue(path) as s:
        assert s.get() == 1


def test_waits_of_a_standard_queue_end_at_a_close(path):
    s = stdqueue.Queue(path, maxsize=1)
    s.put(1)
    ended = []

    def waits(call):
        with pytest.raises(mmq.Closed):
            call()
        ended.append(call)

    threads = [threading.Thread(target=waits, args=[call]) for call in (lambda: s.put(2), s.join)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    s.close()
    for thread in threads:
        thread.join(SOON)
    assert len(ended) == 2


def test_expired_items_make_place(path):
    with stdqueue.Queue(path, maxsize=1, max_age=0.3) as s:
        s.put(1)
        s.put(2, timeout=SOON)


def test_a_standard_queue_is_closed_though_its_callback_leads_to_it(path):
    class Program:
        def __init__(self):
            self.queue = stdqueue.Queue(path, on_gap=self.warn)

        def warn(self, gap):
            pass

    Program()
    gc.collect()
    stdqueue.Queue(path).close()


def test_an_error_of_the_system_has_its_text(tmp_path):
    with pytest.raises(mmq.Io) as failed:
        mmq.Queue("/proc/none")
    assert "No such file" in str(failed.value) and failed.value.errno == 2


def test_all_of_a_record_comes_back(path):
    with mmq.Queue(path) as q:
        logger = logging.Logger("one")
        logger.addHandler(SpoolHandler(q))
        logger.warning("disk %s", "sda", extra={"user": "bob", "of": object})
        record = to_record(q.get())
        assert (record.user, record.filename) == ("bob", os.path.basename(__file__))
        assert (record.getMessage(), record.of) == ("disk sda", str(object))
        json.dumps(vars(record), default=str)


def test_a_child_flushes_its_handlers_without_a_word(path):
    handler = SpoolHandler(path)
    child = os.fork()
    if child == 0:
        try:
            handler.flush()
            handler.close()
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    handler.close()


def test_a_record_that_was_a_record_before_keeps_its_traceback(tmp_path):
    fields = {"msg": "no quotient", "exc_text": "Traceback", "stack_info": "Stack"}
    record = logging.makeLogRecord(fields)
    for run in range(2):
        handler = SpoolHandler(tmp_path / str(run))
        handler.handle(record)
        record = to_record(handler.queue.get())
        handler.close()
    assert logging.Formatter().format(record) == "no quotient\nTraceback\nStack"


def test_what_is_no_record_comes_with_the_error():
    for data in (b"no record", b"[1]", b"\xff"):
        with pytest.raises(mmq.BadItem) as bad:
            to_record(data)
        assert bad.value.data == data


def test_acknowledging_many_is_all_or_none(path):
    with mmq.Queue(path) as q:
        workers = q.consumer("workers")
        q.put_many([b"a", b"b"])
        first, second = workers.receive(), workers.receive()
        second.ack()
        with pytest.raises(mmq.InvalidArgument):
            mmq.ack_many([first, second])
        first.ack()
        assert workers.in_flight == 0


def test_what_cannot_be_called_is_refused(path):
    with pytest.raises(TypeError, match="on_gap"):
        mmq.Queue(path, on_gap=3)
    with mmq.Queue(path) as q, pytest.raises(TypeError, match="on_gap"):
        q.consumer("workers", on_gap=3)


def test_it_has_a_version():
    assert mmq.__version__[0].isdigit()
