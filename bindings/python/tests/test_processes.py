"""Forks, signals, other processes."""

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import pytest

import mmq


def in_a_child(call):
    """Returns what `call` returns in a forked child, as text."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            answer = str(call())
        except BaseException as error:
            answer = type(error).__name__
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as said:
        answer = said.read().decode()
    os.waitpid(child, 0)
    return answer


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_refused_and_the_parent_goes_on(path, tmp_path):
    with mmq.Queue(path) as q:
        q.put_many([b"a", b"b"])
        workers = q.consumer("w")
        job = workers.receive()
        waiting = threading.Thread(target=lambda: q.consumer("x", start="end").get())
        waiting.start()
        for call in (
            lambda: q.put(b"x"),
            q.get,
            q.flush,
            q.close,
            q.stats,
            q.consumer_stats,
            q.consumers,
            q.interrupt,
            lambda: q.id,
            lambda: q.durable_seq,
            lambda: len(q),
            workers.receive,
            lambda: len(workers),
            lambda: workers.in_flight,
            job.ack,
            job.nack,
            q.fileno,
            lambda: next(iter(q)),
            lambda: q.consumer("other"),
        ):
            assert in_a_child(call) == "Forked"
        assert in_a_child(lambda: job.data) == "b'a'"
        assert in_a_child(lambda: mmq.Queue(tmp_path / "own").put(b"")) == "0"
        assert q.get() == b"a"
        job.ack()
        q.put(b"c")
        waiting.join()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_refused_beside_a_thread_that_looks_ahead(path):
    with mmq.Queue(path) as q:
        q.put_many([bytes(8 << 20)] * 4)
        stop = threading.Event()
        ahead = [q.look_ahead()]

        def look():
            while not stop.is_set():
                if next(ahead[0], None) is None:
                    ahead[0] = q.look_ahead()

        looks = threading.Thread(target=look)
        looks.start()
        for _ in range(12):
            assert in_a_child(lambda: next(ahead[0])) == "Forked"
        stop.set()
        looks.join()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_refused_by_a_handle(path):
    with mmq.open_or_connect(path) as q, mmq.connect(path) as client:
        for each in (q, client):
            for call in (lambda: each.put(b"x"), each.stats, each.consumer, each.close):
                assert in_a_child(call) == "Forked"
            assert each.stats().messages == 0


def test_control_c_ends_a_wait(path):
    program = """
import sys, mmq
with mmq.Queue(sys.argv[1], max_bytes=1 << 20, on_full="wait") as q:
    if sys.argv[2] == "put":
        while True:
            try: q.put(b"x" * 10000, timeout=0.1)
            except mmq.Full: break
    print("waits", flush=True)
    try:
        {"get": q.get, "receive": lambda: q.consumer("w").receive(), "loop": lambda: list(q),
         "put": lambda: q.put(b"x" * 10000)}[sys.argv[2]]()
    except KeyboardInterrupt:
        print("interrupted")
"""
    for what in ("get", "receive", "loop", "put"):
        command = [sys.executable, "-c", program, f"{path}-{what}", what]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            assert child.stdout.readline() == b"waits\n"
            time.sleep(0.02)
            child.send_signal(signal.SIGINT)
            assert child.stdout.read() == b"interrupted\n", what
        assert child.returncode == 0


def test_two_processes_use_one_queue(path):
    program = """
import sys, mmq
with mmq.open_or_connect(sys.argv[1]) as q:
    assert not q.is_owner
    with q.consumer("w").receive(timeout=60) as job:
        q.put_many([job.data, b"done"])
    q.flush()
"""
    with mmq.open_or_connect(path) as q:
        assert q.is_owner
        q.put(b"work")
        subprocess.check_call([sys.executable, "-c", program, path])
        own = q.consumer()
        assert own.get_nowait() == b"work" and own.get(timeout=60) == b"work"
        assert own.get() == b"done"
        assert q.stats().enqueued == 3


def test_a_client_of_an_owner(path):
    with mmq.Queue(path, shared=True) as owner:
        client = mmq.connect(path)
        assert client.put(b"a") == 0 and owner.get() == b"a"
        consumer = client.consumer("w")
        assert consumer.peek() == b"a"
        consumer.set_redelivery(max_attempts=5)
        consumer.receive().nack()
        assert [job.ack() for job in consumer.deliveries(timeout=0)] == [None]
        with pytest.raises(mmq.Empty):
            consumer.get(timeout=0.01)
        for call in (consumer.fileno, lambda: len(consumer), consumer.look_ahead, consumer.skip):
            with pytest.raises(mmq.InvalidArgument, match="only the process that has the queue"):
                call()
        client.remove_consumer("w")
    with pytest.raises(mmq.Disconnected):
        client.put(b"b")
    client.close()
    with pytest.raises(mmq.Closed):
        client.put(b"b")
    with pytest.raises(mmq.NotShared):
        mmq.connect(path)


def test_a_delivery_is_let_go_while_the_owner_reads_nothing(path):
    """The owner is a thread of this process: it needs the interpreter's lock to read on."""
    os.mkdir(path)
    count, listener = 2_000, socket.socket(socket.AF_UNIX)
    listener.bind(f"{path}/socket")
    listener.listen()
    are_gone, back = threading.Event(), []

    def frame(number, status, body):
        return struct.pack("<QQHHI", number, len(body), status, 0, 0) + body

    def own():
        with listener, listener.accept()[0] as to, to.makefile("rb") as came:
            came.read(24 + 12)
            to.sendall(frame(1, 0, struct.pack("<IIQ16x", 1, 0, 1 << 24)))
            for job in range(count):
                number = struct.unpack("<QQHHI", came.read(24))[0]
                came.read(12)
                to.sendall(frame(number, 0, struct.pack("<QQII", job, job, 1, 0)))
            are_gone.wait()
            number = 0
            while number == 0:
                number, length = struct.unpack("<QQ8x", came.read(24))
                back.append(came.read(length)[:8])
            to.sendall(frame(number, 0, struct.pack("<Q", 7)))

    owner = threading.Thread(target=own)
    owner.start()
    client = mmq.connect(path)
    consumer = client.consumer()
    jobs = [consumer.receive(timeout=0) for _ in range(count)]
    while jobs:
        del jobs[0]
    are_gone.set()
    client.put(b"a")
    owner.join()
    assert back == [struct.pack("<Q", job) for job in range(count)] + [b"a"]


def test_destructors_let_other_threads_run(path):
    def delivery(number):
        q.put(b"a")
        return q.receive()

    makes = {
        "delivery": delivery,
        "consumer": lambda number: q.consumer(f"{number}"),
        "look ahead": lambda number: q.look_ahead(),
        "handle": lambda number: mmq.open_or_connect(f"{path}-{number}"),
        "queue": lambda number: mmq.Queue(f"{path}-{number}"),
    }
    interval = sys.getswitchinterval()
    with mmq.Queue(path) as q:
        for what, make in makes.items():
            for number in range(10_000):
                thing, goes, ran = make(number), threading.Event(), []
                other = threading.Thread(target=lambda: (goes.wait(), ran.append(1)))
                other.start()
                # From here on a thread runs only when another one lets go of the lock.
                sys.setswitchinterval(1_000)
                goes.set()
                del thing
                has_run = bool(ran)
                sys.setswitchinterval(interval)
                other.join()
                if has_run:
                    break
            else:
                raise AssertionError(f"the destructor of a {what} holds the interpreter's lock")


def test_a_handle_goes_on_when_the_owner_ends(path):
    first, second = mmq.open_or_connect(path), mmq.open_or_connect(path)
    consumer = second.consumer("w")
    first.put(b"a")
    assert first.is_owner and not second.is_owner
    first.close()
    assert consumer.get() == b"a"
    assert second.is_owner
    second.close()
