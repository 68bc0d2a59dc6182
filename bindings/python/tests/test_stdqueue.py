import decimal
import json
import pickle
import queue
import signal
import threading

import pytest

import mmq
from mmq import stdqueue
from test_gaps import damaged


@pytest.fixture(params=[queue.Queue, stdqueue.Queue])
def make(request, tmp_path):
    """Makes the standard library's queue, and ours: both must do the same."""
    if request.param is queue.Queue:
        return queue.Queue
    return lambda maxsize=0: stdqueue.Queue(tmp_path / "queue", maxsize)


def test_it_does_what_the_standard_librarys_does(make):
    q = make(2)
    assert q.empty() and not q.full() and q.qsize() == 0
    q.put("a")
    q.put({"b": [1, None]}, timeout=1)
    assert q.full() and q.qsize() == 2
    for options in ({"block": False}, {"timeout": 0.01}):
        with pytest.raises(queue.Full):
            q.put("c", **options)
    with pytest.raises(queue.Full):
        q.put_nowait("c")
    assert q.get() == "a" and q.get(timeout=1) == {"b": [1, None]}
    q.put("d", 1)
    assert q.get(1) == "d"
    q.task_done()
    for get in (q.get_nowait, lambda: q.get(0), lambda: q.get(None), lambda: q.get(timeout=0.01)):
        with pytest.raises(queue.Empty):
            get()
    for call in (lambda: q.get(timeout=-1), lambda: q.put("c", timeout=-1)):
        with pytest.raises(ValueError):
            call()
    q.task_done()
    q.task_done()
    q.join()
    with pytest.raises(ValueError, match="task_done\\(\\) called too many times"):
        q.task_done()


def test_threads_put_get_and_join(make):
    q = make(3)
    taken = []

    def work():
        while True:
            item = q.get()
            if item is None:
                return
            taken.append(item)
            q.task_done()

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for number in range(300):
        q.put(number)
    q.join()
    assert sorted(taken) == list(range(300))
    for _ in workers:
        q.put(None)
    for worker in workers:
        worker.join()


def test_items_survive_and_count_for_join(path):
    with stdqueue.Queue(path) as q:
        q.put("a")
        q.flush()
    with stdqueue.Queue(path) as q:
        assert q.get() == "a"
        q.task_done()
        q.join()


def test_pickle_when_asked_for(path, tmp_path):
    with stdqueue.Queue(path) as q:
        with pytest.raises(TypeError):
            q.put(decimal.Decimal("0.1"))
        assert q.qsize() == 0
        q.join()
    with stdqueue.Queue(tmp_path / "pickled", serializer=pickle) as q:
        q.put(decimal.Decimal("0.1"))
        assert q.get() == decimal.Decimal("0.1")


def test_a_limit_of_bytes(tmp_path):
    with stdqueue.Queue(tmp_path / "waits", max_bytes=1 << 20) as q:
        with pytest.raises(queue.Full):
            while True:
                q.put("x" * 10_000, timeout=0.001)
        q.get()
    with stdqueue.Queue(tmp_path / "rejects", max_bytes=1 << 20, on_full="reject") as q:
        with pytest.raises(queue.Full):
            while True:
                q.put("x" * 10_000)


def test_items_that_were_dropped_do_not_hold_up_join(path, caplog):
    with stdqueue.Queue(path, max_bytes=1 << 20, on_full="drop-oldest") as q:
        for number in range(500):
            q.put("x" * 10_000)
        while not q.empty():
            q.get()
            q.task_done()
        q.join()
    assert "will never come: dropped" in caplog.text


def test_a_put_that_does_not_wait_for_room_waits_for_its_flush(path):
    with stdqueue.Queue(path, flush_every_ops=1) as q:
        for number in range(5):
            q.put_nowait(number)
            q.put(number, timeout=0)
        assert q.qsize() == 10
        while not q.empty():
            q.get()
            q.task_done()
        q.join()


def test_an_item_that_cannot_be_read_comes_with_the_error(path):
    with mmq.Queue(path) as raw:
        raw.put_many([b"no json", b'"good"'])
    with stdqueue.Queue(path) as q:
        with pytest.raises(mmq.BadItem, match="item 0 cannot be read") as bad:
            q.get()
        assert bad.value.data == b"no json"
        assert q.get() == "good"
        q.task_done()
        q.join()
        with pytest.raises(ValueError, match="too many times"):
            q.task_done()


@pytest.mark.parametrize("raised", [KeyboardInterrupt, TimeoutError])
def test_a_get_that_is_interrupted_has_taken_nothing(path, raised):
    class Interrupted:
        dumps = json.dumps

        @staticmethod
        def loads(data):
            Interrupted.loads = json.loads
            raise raised

    with stdqueue.Queue(path, serializer=Interrupted) as q:
        q.put(1)
        # Who keeps the exception, as the interpreter's prompt does, keeps no item.
        with pytest.raises(raised) as kept:
            q.get()
        assert q.qsize() == 1
        assert q.get(timeout=0) == 1, kept


def test_exceptions_of_a_signals_handler_lose_no_place_and_no_lock(path):
    class Alarm(Exception):
        pass

    def ring(*_):
        raise Alarm

    q = stdqueue.Queue(path, maxsize=1)
    settled = []

    def settle():
        while not q.empty():
            q.get()
        q.put("finds its place", timeout=0)
        settled.append(q.get())

    before = signal.signal(signal.SIGALRM, ring)
    try:
        for n in range(300):
            with pytest.raises(Alarm):
                signal.setitimer(signal.ITIMER_REAL, 0.0002 + n / 1e6)
                while True:
                    q.put("an item")
                    q.get()
                    q.task_done()
            # Another thread: a lock that was kept is open to this one.
            other = threading.Thread(target=settle, daemon=True)
            other.start()
            other.join(10)
            assert len(settled) == n + 1, f"the exception {n} lost a place or a lock"
    finally:
        signal.signal(signal.SIGALRM, before)
    q.close()


def test_items_that_are_damaged_do_not_hold_up_join(path, caplog):
    class Raw:
        dumps = loads = staticmethod(bytes)

    damaged(path)
    with stdqueue.Queue(path, serializer=Raw) as q:
        for _ in range(99):
            q.get()
            q.task_done()
        q.join()
    assert "will never come: damaged" in caplog.text


def test_a_close_ends_the_waits(path):
    q = stdqueue.Queue(path)
    ended = []

    def wait():
        with pytest.raises(mmq.Closed):
            q.get()
        ended.append(True)

    thread = threading.Thread(target=wait)
    thread.start()
    q.close()
    thread.join()
    assert ended
