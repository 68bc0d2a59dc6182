import pathlib

import pytest

import mmq


def damaged(path):
    """A queue of 100 messages, of which number 50 is damaged."""
    with mmq.Queue(path) as q:
        q.put_many([b"message %03d" % number for number in range(100)])
        q.consumer("other")
    for file in pathlib.Path(path).iterdir():
        content = file.read_bytes()
        at = content.find(b"message 050")
        if at >= 0:
            with file.open("r+b") as segment:
                segment.seek(at)
                segment.write(b"MESSAGE")
            return
    raise AssertionError("the message was not found")


def test_a_gap_is_raised_once_and_reading_goes_on(path):
    damaged(path)
    with mmq.Queue(path) as q:
        assert len(q.get_many(50)) == 50
        with pytest.raises(mmq.Gap) as raised:
            q.get()
        gap = raised.value
        assert (gap.first, gap.last, gap.count, gap.cause, gap.status) == (50, 50, 1, "damaged", 4)
        assert str(gap) == "message 50 will never come: damaged"
        assert q.get() == b"message 051"
        assert q.stats().lost_damaged == 1


def test_a_loop_goes_on_behind_a_gap(path):
    damaged(path)
    with mmq.Queue(path) as q:
        messages = q.messages(timeout=0)
        with pytest.raises(mmq.Gap):
            list(messages)
        assert next(messages) == b"message 051"


def test_a_callback_is_told_and_each_consumer_has_its_own(path):
    damaged(path)
    told, others = [], []
    with mmq.Queue(path, on_gap=told.append) as q:
        assert len(list(q.messages(timeout=0))) == 99
        assert [gap.first for gap in told] == [50]
        other = q.consumer("other", on_gap=others.append)
        assert len([job.ack() for job in other.deliveries(timeout=0)]) == 99
        assert [gap.first for gap in others] == [50]


def test_a_callback_that_raises_ends_the_read_and_loses_nothing(path):
    damaged(path)

    def stop(gap):
        raise RuntimeError(str(gap))

    with mmq.Queue(path, on_gap=stop) as q:
        q.get_many(50)
        with pytest.raises(RuntimeError, match="message 50"):
            q.get()
        assert q.get() == b"message 051"


def test_looking_ahead_tells_gaps_too(path):
    damaged(path)
    with mmq.Queue(path) as q:
        ahead = q.look_ahead()
        with pytest.raises(mmq.Gap):
            list(ahead)
        assert next(ahead).seq == 51


def test_dropped_messages_are_a_gap(path):
    with mmq.Queue(path, max_bytes=1 << 20, on_full="drop-oldest") as q:
        with pytest.raises(mmq.Empty):
            q.peek()  # there is a consumer from now on
        for _ in range(500):
            q.put(b"x" * 10_000)
        with pytest.raises(mmq.Gap) as gap:
            q.get()
        assert gap.value.cause == "dropped" and gap.value.count == q.stats().dropped
