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

with tempfile.TemporaryDirectory() as directory:
    queue, message = ffi.new("mmq_queue **"), ffi.new("mmq_message **")
    assert mmq.mmq_open(directory.encode(), ffi.NULL, queue) == mmq.MMQ_OK
    for text in (b"hello", b"", bytes(range(256))):
        assert mmq.mmq_enqueue(queue[0], text, len(text), ffi.NULL) == mmq.MMQ_OK
    for text in (b"hello", b"", bytes(range(256))):
        assert mmq.mmq_dequeue(queue[0], message) == mmq.MMQ_OK
        length = mmq.mmq_message_len(message[0])
        assert ffi.buffer(mmq.mmq_message_data(message[0]), length)[:] == text
        mmq.mmq_message_free(message[0])
    assert mmq.mmq_dequeue(queue[0], message) == mmq.MMQ_EMPTY
    assert mmq.mmq_close(queue[0]) == mmq.MMQ_OK
print("3 messages through cffi")
