import array
import sys

import pytest

import mmq


@pytest.mark.parametrize(
    "given, bytes_of_it",
    [
        (bytearray(b"a bytearray"), b"a bytearray"),
        (memoryview(b"a view of bytes")[2:6], b"view"),
        (memoryview(bytearray(b"a view")), b"a view"),
        (bytearray(), b""),
        (memoryview(b""), b""),
        (array.array("i", [1, -1]), array.array("i", [1, -1]).tobytes()),
        (array.array("d", [0.5]), array.array("d", [0.5]).tobytes()),
    ],
)
def test_buffers_go_in(path, given, bytes_of_it):
    with mmq.Queue(path) as q:
        q.put(given)
        q.put_many([given, b"bytes", given])
        assert q.get_many(9) == [bytes_of_it, bytes_of_it, b"bytes", bytes_of_it]


def test_arrays_of_numpy_go_in(path):
    numpy = pytest.importorskip("numpy")
    readings = numpy.arange(12, dtype=numpy.float32).reshape(3, 4)
    with mmq.Queue(path) as q:
        q.put(readings)
        q.put(memoryview(readings))
        q.put(readings.view(numpy.uint8))
        for _ in range(3):
            back = numpy.frombuffer(q.get(), dtype=numpy.float32).reshape(3, 4)
            assert (back == readings).all()


def test_a_buffer_that_is_not_contiguous_is_refused(path):
    with mmq.Queue(path) as q:
        if sys.version_info >= (3, 11):
            with pytest.raises(TypeError, match="a message is bytes, or a contiguous buffer"):
                q.put(memoryview(b"abcdef")[::2])
        else:  # it is copied there
            q.put(memoryview(b"abcdef")[::2])
            assert q.get() == b"ace"


def test_a_buffer_is_released(path):
    with mmq.Queue(path) as q:
        given = bytearray(b"a message")
        q.put(given)
        given.extend(b" that may grow again")
        assert q.get() == b"a message"
