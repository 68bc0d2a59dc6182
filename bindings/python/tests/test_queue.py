import os
import pathlib
import queue
import signal
import subprocess
import sys
import threading

import pytest

import mmq


def test_messages_come_in_order_and_survive_a_reopening(path):
    with mmq.Queue(path) as q:
        assert [q.put(b"%d" % number) for number in range(100)] == list(range(100))
        assert q.get() == b"0"
    with mmq.Queue(pathlib.Path(path)) as q:
        assert list(q.messages(timeout=0)) == [b"%d" % number for number in range(1, 100)]
        assert q.path == pathlib.Path(path) or q.path == path
        assert len(q.id) == 16


def test_any_bytes_come_back(path):
    messages = [b"", b"\0", bytes(range(256)), os.urandom(5_000_000)]
    with mmq.Queue(path) as q:
        assert q.put_many(iter(messages)) == range(0, 4)
        assert q.get_many(100) == messages


def test_an_empty_queue_raises_empty_as_the_standard_librarys_does(path):
    with mmq.Queue(path) as q:
        for read in (q.get_nowait, q.peek, q.skip, lambda: q.get(False), lambda: q.get(timeout=0)):
            with pytest.raises(queue.Empty):
                read()
        with pytest.raises(mmq.Empty) as raised:
            q.receive(timeout=0.01)
        assert raised.value.status == 1
        assert q.get_many(5) == q.receive_many(5) == list(q.messages(timeout=0.01)) == []


def test_a_batch_goes_in_whole_or_not_at_all(path):
    with mmq.Queue(path) as q:
        with pytest.raises(TypeError):
            q.put_many([b"a", 1])
        assert len(q) == 0
        assert q.put_many([]) == range(0, 0)


def test_threads_share_the_messages(path):
    with mmq.Queue(path) as q:
        taken = []

        def take():
            taken.extend(q)

        def put(first):
            for number in range(first, first + 500):
                q.put(b"%d" % number)

        takers = [threading.Thread(target=take) for _ in range(3)]
        putters = [threading.Thread(target=put, args=(at * 500,)) for at in range(3)]
        for thread in takers + putters:
            thread.start()
        for thread in putters:
            thread.join()
        while len(q):
            q.wait_durable(q.stats().next_seq - 1)
        q.close()
        for thread in takers:
            thread.join()
        assert sorted(map(int, taken)) == list(range(1500))


def test_a_wait_ends_with_a_message_and_with_a_close(path):
    q = mmq.Queue(path)
    consumer = q.consumer("w")
    answers = []

    def wait(read):
        try:
            answers.append(read())
        except mmq.Closed as closed:
            answers.append(closed.status)

    first = threading.Thread(target=wait, args=(q.get,))
    first.start()
    q.put(b"a message")
    first.join()
    assert answers == [b"a message"]
    assert consumer.get() == b"a message"
    waiting = [threading.Thread(target=wait, args=(read,)) for read in (q.get, consumer.receive)]
    for thread in waiting:
        thread.start()
    q.close()
    for thread in waiting:
        thread.join()
    assert answers[1:] == [25, 25]
    q.close()
    assert q.closed
    for call in (q.get_nowait, q.peek, q.stats, consumer.get, lambda: q.put(b""), lambda: len(q)):
        with pytest.raises(mmq.Closed):
            call()


def test_interrupt_ends_a_wait_and_leaves_the_queue_open(path):
    with mmq.Queue(path) as q:
        ended = threading.Event()

        def wait():
            with pytest.raises(mmq.Interrupted):
                q.get()
            ended.set()

        thread = threading.Thread(target=wait)
        thread.start()
        while not ended.wait(0.001):
            q.interrupt()
        thread.join()
        q.put(b"goes on")
        assert q.get() == b"goes on"


@pytest.mark.parametrize("read", ["get", "receive", "messages", "deliveries"])
def test_an_interrupt_by_a_signals_handler_ends_the_wait_it_is_called_in(path, read):
    # There the wait stands between two waits of the engine.
    with mmq.Queue(path) as q:
        wait = getattr(q.consumer("w"), read)
        before = signal.signal(signal.SIGALRM, lambda *_: q.interrupt())
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
        try:
            with pytest.raises(mmq.Interrupted):
                list(wait(timeout=10))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def test_a_closed_queue_opens_again_at_once(path):
    for number in range(20):
        with mmq.Queue(path) as q:
            assert q.put(b"") == number


def test_a_queue_that_nobody_holds_is_closed_and_a_consumer_holds_it(path):
    consumer = mmq.Queue(path).consumer("w")
    with pytest.raises(mmq.Locked):
        mmq.Queue(path)
    del consumer
    with mmq.Queue(path) as q:
        assert q.consumers() == ["w"]


def test_consumers_have_places_of_their_own(path):
    with mmq.Queue(path) as q:
        mail = q.consumer("mail")
        q.put_many([b"a", b"b", b"c"])
        late, third = q.consumer("late", start="end"), q.consumer("third", start=2)
        assert (len(mail), len(late), len(third)) == (3, 0, 1)
        assert q.consumers() == ["late", "mail", "third"]
        assert mail.get_many(2) == [b"a", b"b"] and third.get() == b"c"
        mail.seek(1)
        assert mail.get() == b"b" and mail.fork("trial").get() == b"c"
        q.remove_consumer("trial")
        stats = {stats.name: stats for stats in q.consumer_stats()}
        assert stats["mail"].messages == 1 and "trial" not in stats
        assert mail.name == "mail"


def test_looking_ahead_takes_nothing(path):
    with mmq.Queue(path) as q:
        q.put_many([b"a", b"b"])
        ahead = q.look_ahead()
        assert [(message.seq, message.data) for message in ahead] == [(0, b"a"), (1, b"b")]
        q.put(b"c")
        assert next(ahead).data == b"c"
        assert next(ahead, None) is None
        assert q.peek() == b"a" and q.skip() == 0 and len(q) == 2


def test_figures(path):
    with mmq.Queue(path, flush_every_ops=1) as q:
        q.put_many([b"a", b"b"])
        q.get()
        stats = q.stats()
        assert (stats.messages, stats.enqueued, stats.dequeued, stats.durable_seq) == (1, 2, 1, 2)
        assert stats.oldest_age is not None and stats.last_flush_error is None
        assert q.durable_seq == 2


def test_a_full_queue_refuses_drops_or_waits(path, tmp_path):
    message = b"x" * 10_000
    with mmq.Queue(path, max_bytes=1 << 20) as q:
        with pytest.raises(queue.Full) as full:
            while True:
                q.put(message)
        assert isinstance(full.value, mmq.Full) and "max_bytes" in str(full.value)
        assert q.stats().refused == 1
    with mmq.Queue(tmp_path / "drops", max_bytes=1 << 20, on_full="drop-oldest") as q:
        for _ in range(500):
            q.put(message)
        assert q.stats().dropped > 0
    with mmq.Queue(tmp_path / "waits", max_bytes=1 << 20, on_full="wait") as q:
        with pytest.raises(mmq.Full):
            while True:
                q.put(message, timeout=0)
        putter = threading.Thread(target=q.put, args=(message,))
        putter.start()
        while putter.is_alive():
            q.get_many(10)
        putter.join()
    with mmq.Queue(tmp_path / "waits-a-while", max_bytes=1 << 20, on_full=0.01) as q:
        with pytest.raises(mmq.Full):
            while True:
                q.put(message)


def test_the_time_to_wait_for_room_does_not_end_the_flush(path):
    with mmq.Queue(path, on_full="wait", flush_every_ops=1) as q:
        for number in range(10):
            assert q.put(b"a message", timeout=0) == number
        assert (len(q), q.durable_seq) == (10, 10)


def test_a_close_ends_a_wait_for_room(path):
    q = mmq.Queue(path, max_bytes=1 << 20, on_full="wait")
    with pytest.raises(mmq.Full):
        while True:
            q.put(b"x" * 10_000, timeout=0)
    ended = []

    def put():
        try:
            q.put(b"x" * 10_000)
        except mmq.Error as error:
            ended.append(type(error))

    putter = threading.Thread(target=put)
    putter.start()
    q.close()
    putter.join()
    assert ended == [mmq.Closed]


def test_a_second_opener_gets_the_holders_pid(path):
    with mmq.Queue(path):
        with pytest.raises(mmq.Locked) as here:
            mmq.Queue(path)
        assert here.value.pid == os.getpid()
        program = (
            "import sys, mmq\ntry: mmq.Queue(sys.argv[1])\nexcept mmq.Locked as e: print(e.pid)"
        )
        said = subprocess.check_output([sys.executable, "-c", program, path])
        assert int(said) == os.getpid()


def test_an_own_class_of_queue(path):
    class Lines(mmq.Queue):
        def put_line(self, line):
            return self.put(line.encode())

    with Lines(path) as q:
        q.put_line("a line")
        assert q.get() == b"a line"
