"""Each bad input gets a clear error, and changes nothing."""

import math

import pytest

import mmq


@pytest.mark.parametrize(
    "options, error, words",
    [
        ({"max_bytes": 1}, mmq.InvalidOption, "option max_bytes: 1 bytes is below"),
        ({"max_bytes": -1}, mmq.InvalidOption, "option max_bytes"),
        ({"max_bytes": "1M"}, TypeError, "option max_bytes"),
        ({"arena_size": 4097}, mmq.InvalidOption, "option arena_size: 4097 bytes is not a mult"),
        ({"max_mapped_arenas": 2}, mmq.InvalidOption, "option max_mapped_arenas: 2 is too few"),
        ({"flush_every_ops": 0}, mmq.InvalidOption, "option flush_every_ops: 0 operations"),
        ({"flush_every": 0}, mmq.InvalidOption, "option flush_every: zero time"),
        ({"flush_every": -1}, mmq.InvalidArgument, "flush_every: -1 is negative"),
        ({"flush_every": math.nan}, mmq.InvalidArgument, "flush_every: NaN is not a number"),
        ({"max_age": 0.0001}, mmq.InvalidOption, "option max_age: below one millisecond"),
        ({"on_full": "drop"}, mmq.InvalidOption, 'option on_full: \'drop\' is neither "reject"'),
        ({"on_full": -2}, mmq.InvalidArgument, "on_full: -2 is negative"),
        ({"mode": 0o1000}, mmq.InvalidOption, "option mode"),
        ({"shared_mode": 0}, mmq.InvalidOption, "option shared_mode"),
        ({"maxbytes": 1}, TypeError, "option maxbytes: there is no such option"),
    ],
)
def test_options(path, options, error, words):
    with pytest.raises(error) as raised:
        mmq.Queue(path, **options)
    assert words in str(raised.value)
    with pytest.raises(mmq.NotFound):
        mmq.Queue(path, create=False)


def test_bad_options_are_value_errors(path):
    with pytest.raises(ValueError) as raised:
        mmq.Queue(path, max_bytes=1)
    assert raised.value.status == 17


def test_directories(path, tmp_path):
    with pytest.raises(LookupError) as raised:
        mmq.Queue(path, create=False)
    assert raised.value.status == 21
    with pytest.raises(mmq.InvalidArgument):
        mmq.Queue("")
    with pytest.raises(TypeError):
        mmq.Queue(7)
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "a.txt").write_text("not a queue")
    with pytest.raises(mmq.NotAQueue) as raised:
        mmq.Queue(tmp_path / "letters")
    assert raised.value.status == 29
    with pytest.raises(OSError) as raised:
        mmq.Queue(tmp_path / "letters" / "a.txt")
    assert isinstance(raised.value, mmq.Io) and raised.value.errno and raised.value.filename


def test_messages(path):
    with mmq.Queue(path) as q:
        for put in (q.put, lambda given: q.put_many([given])):
            with pytest.raises(TypeError, match="not text: encode it"):
                put("text")
            for given in (1, None, [b"a"], object()):
                with pytest.raises(TypeError, match="a message is bytes, or a contiguous buffer"):
                    put(given)
        with pytest.raises(TypeError):
            q.put_many(7)
        assert len(q) == 0 and q.put(b"") == 0


def test_times(path):
    with mmq.Queue(path) as q:
        for call in (
            lambda: q.get(timeout=-1),
            lambda: q.receive(timeout=-1),
            lambda: q.messages(timeout=math.nan),
            lambda: q.set_redelivery(lease=-1),
            lambda: q.set_redelivery(backoff=(2, 1)),
            lambda: q.set_redelivery(max_attempts=0),
            lambda: q.set_redelivery(lease=0.0001),
            lambda: q.set_redelivery(dead_letters=q),
            lambda: q.set_max_in_flight(0),
            lambda: q.put(b"", timeout=1),
        ):
            with pytest.raises(mmq.InvalidArgument):
                call()
        q.put(b"a message")
        assert q.get(timeout=math.inf) == b"a message"


def test_consumers(path):
    with mmq.Queue(path) as q:
        for name in ("", "x" * 256):
            with pytest.raises(mmq.InvalidArgument):
                q.consumer(name)
        for start in ("newest", -1, 1.5, None.__class__):
            with pytest.raises(mmq.InvalidArgument, match="start: "):
                q.consumer("c", start=start)
        with pytest.raises(mmq.NotFound):
            q.consumer("c", start=17)
        with pytest.raises(mmq.NotFound):
            q.remove_consumer("c")
        with pytest.raises(mmq.NotFound):
            q.seek(17)
        with pytest.raises(mmq.NotFound):
            q.wait_durable(17)
        q.consumer("c")
        with pytest.raises(mmq.InvalidArgument):
            q.fork("c")
        q.remove_consumer("c")


def test_a_delivery_is_decided_once(path):
    with mmq.Queue(path) as q:
        q.put(b"a job")
        job = q.receive()
        with pytest.raises(mmq.InvalidArgument):
            job.nack(delay=-1)
        job.ack()
        for again in (job.ack, job.nack, job.reject, lambda: job.extend(1)):
            with pytest.raises(mmq.InvalidArgument, match="delivery 0 was acknowledged"):
                again()
        assert job.data == b"a job"


def test_numbers_out_of_range_are_invalid_arguments(path):
    with mmq.Queue(path) as q:
        for call in (
            q.seek,
            q.wait_durable,
            q.get_many,
            q.receive_many,
            q.set_max_in_flight,
            lambda most: q.set_redelivery(max_attempts=most),
        ):
            for number in (-1, -2**70, 2**70):
                with pytest.raises(mmq.InvalidArgument, match=f"^{number} is out of range: "):
                    call(number)
            with pytest.raises(TypeError):
                call("1")
        with pytest.raises(mmq.InvalidArgument, match="start: -1"):
            q.consumer("w", start=-1)


def test_every_exception_has_its_status():
    numbers = {name: value.status for name, value in vars(mmq).items() if isinstance(value, type)
               and issubclass(value, mmq.Error)}
    assert numbers == {
        "Error": 31, "Internal": 31, "Empty": 1, "Gap": 4, "InvalidArgument": 16, "Undecided": 16,
        "BadItem": 16, "InvalidOption": 17, "MessageTooLarge": 18, "Full": 19, "Locked": 20, "NotFound": 21,
        "UnsupportedFormat": 22, "Io": 23, "Poisoned": 24, "Closed": 25, "Forked": 26,
        "Expired": 27, "Interrupted": 28, "NotAQueue": 29, "NotShared": 32, "Disconnected": 33,
    }
