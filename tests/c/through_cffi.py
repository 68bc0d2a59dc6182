"""Puts messages in and takes them out through cffi: python3 through_cffi.py PREFIX. Python reads
the declarations that mmq-install makes of the header."""

import sys
import tempfile

import cffi

prefix = sys.argv[1]
ffi = cffi.FFI()
with open(prefix + "/include/mmq.cdef.h", encoding="utf-8") as declarations:
    ffi.cdef(declarations.read())
mmq = ffi.dlopen(prefix + "/lib/libmmq.so")


def last_error():
    text = ffi.new("char[]", 512)
    mmq.mmq_last_error(text, len(text))
    return ffi.string(text).decode(errors="replace")


def work_through(queue):
    """Receives each message, and acknowledges it when its work is done. Returns the numbers of
    those received, and of those that will never come."""
    delivery, gap = ffi.new("mmq_delivery **"), ffi.new("mmq_gap *")
    received, missing = [], []
    while (status := mmq.mmq_receive(queue, delivery)) != mmq.MMQ_EMPTY:
        if status == mmq.MMQ_GAP:
            # It is reported once; the next call goes on behind it.
            assert mmq.mmq_last_gap(queue, gap) == mmq.MMQ_OK
            assert gap.cause == mmq.MMQ_GAP_DROPPED
            missing += range(gap.first, gap.last + 1)
            continue
        assert status == mmq.MMQ_OK, last_error()
        received.append(mmq.mmq_delivery_seq(delivery[0]))
        assert mmq.mmq_delivery_ack(delivery[0]) == mmq.MMQ_OK
    return received, missing


with tempfile.TemporaryDirectory() as directory:
    queue, message = ffi.new("mmq_queue **"), ffi.new("mmq_message **")
    options = mmq.mmq_options_new()
    assert mmq.mmq_options_set_max_bytes(options, 1 << 20) == mmq.MMQ_OK
    assert mmq.mmq_options_set_on_full(options, mmq.MMQ_DROP_OLDEST, 0) == mmq.MMQ_OK
    assert mmq.mmq_open(directory.encode(), options, queue) == mmq.MMQ_OK
    mmq.mmq_options_free(options)
    for text in (b"hello", b"", bytes(range(256))):
        assert mmq.mmq_enqueue(queue[0], text, len(text), ffi.NULL) == mmq.MMQ_OK
    for text in (b"hello", b"", bytes(range(256))):
        assert mmq.mmq_dequeue(queue[0], message) == mmq.MMQ_OK
        length = mmq.mmq_message_len(message[0])
        assert ffi.buffer(mmq.mmq_message_data(message[0]), length)[:] == text
        mmq.mmq_message_free(message[0])
    assert mmq.mmq_dequeue(queue[0], message) == mmq.MMQ_EMPTY

    # More than fits: the oldest are dropped.
    for number in range(3, 3000):
        assert mmq.mmq_enqueue(queue[0], bytes(1000), 1000, ffi.NULL) == mmq.MMQ_OK
    received, missing = work_through(queue[0])
    assert missing and missing + received == list(range(3, 3000))

    # Later versions append fields: the library fills no more than the caller has.
    stats = ffi.new("mmq_stats *", {"struct_size": ffi.sizeof("mmq_stats")})
    assert mmq.mmq_read_stats(queue[0], stats) == mmq.MMQ_OK
    assert (stats.messages, stats.next_seq) == (0, 3000)
    assert mmq.mmq_close(queue[0]) == mmq.MMQ_OK
print("3000 messages through cffi")
