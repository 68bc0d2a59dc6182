"""Forks, signals, other processes."""

import os
import signal
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
            workers.receive,
            job.ack,
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


def test_a_handle_goes_on_when_the_owner_ends(path):
    first, second = mmq.open_or_connect(path), mmq.open_or_connect(path)
    consumer = second.consumer("w")
    first.put(b"a")
    assert first.is_owner and not second.is_owner
    first.close()
    assert consumer.get() == b"a"
    assert second.is_owner
    second.close()
