package mmq

import (
	"encoding/binary"
	"fmt"
	"io"
)

// The calls of the protocol that this package uses, as docs/share.md numbers them.
const (
	callHello          = 1
	callEnqueue        = 2
	callEnqueueBatch   = 3
	callFlush          = 5
	callWaitDurable    = 6
	callDurableSeq     = 7
	callStats          = 8
	callOpenConsumer   = 16
	callRemoveConsumer = 17
	callSeek           = 19
	callPeek           = 20
	callDequeue        = 21
	callReceive        = 22
	callAck            = 23
	callNack           = 24
	callExtend         = 25
	callReject         = 26
	callSetRedelivery  = 27
	callEndWait        = 28
)

const (
	headerLen  = 24
	version    = 1
	maxMessage = 16 << 20
	// none stands for "no limit" and "nothing" in a field of 8 bytes.
	none = ^uint64(0)
)

// A header stands before the body of a frame.
type header struct {
	number   uint64
	length   uint64
	kind     uint16
	consumer uint16
	more     uint32
}

func (h header) append(to []byte) []byte {
	to = binary.LittleEndian.AppendUint64(to, h.number)
	to = binary.LittleEndian.AppendUint64(to, h.length)
	to = binary.LittleEndian.AppendUint16(to, h.kind)
	to = binary.LittleEndian.AppendUint16(to, h.consumer)
	return binary.LittleEndian.AppendUint32(to, h.more)
}

// readFrame reads one frame. The length comes from the owner, so memory grows with what arrives.
func readFrame(from io.Reader) (header, []byte, error) {
	var bytes [headerLen]byte
	if _, err := io.ReadFull(from, bytes[:]); err != nil {
		return header{}, nil, err
	}
	h := header{
		number:   binary.LittleEndian.Uint64(bytes[0:]),
		length:   binary.LittleEndian.Uint64(bytes[8:]),
		kind:     binary.LittleEndian.Uint16(bytes[16:]),
		consumer: binary.LittleEndian.Uint16(bytes[18:]),
		more:     binary.LittleEndian.Uint32(bytes[20:]),
	}
	const most = 5 << 30
	if h.length > most {
		return h, nil, fmt.Errorf("a frame of %d bytes", h.length)
	}
	if h.length <= 1<<20 {
		body := make([]byte, h.length)
		_, err := io.ReadFull(from, body)
		return h, body, err
	}
	body, err := io.ReadAll(io.LimitReader(from, int64(h.length)))
	if err == nil && uint64(len(body)) < h.length {
		err = io.ErrUnexpectedEOF
	}
	return h, body, err
}

// fields reads the fields of a body. The first field that is missing sets bad.
type fields struct {
	rest []byte
	bad  bool
}

func (f *fields) bytes(count int) []byte {
	if count > len(f.rest) {
		f.rest, f.bad = nil, true
		return make([]byte, count)
	}
	bytes := f.rest[:count]
	f.rest = f.rest[count:]
	return bytes
}

func (f *fields) u16() uint16 { return binary.LittleEndian.Uint16(f.bytes(2)) }
func (f *fields) u32() uint32 { return binary.LittleEndian.Uint32(f.bytes(4)) }
func (f *fields) u64() uint64 { return binary.LittleEndian.Uint64(f.bytes(8)) }

func u64(numbers ...uint64) []byte {
	var body []byte
	for _, number := range numbers {
		body = binary.LittleEndian.AppendUint64(body, number)
	}
	return body
}
