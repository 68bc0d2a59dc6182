package mmq

import (
	"errors"
	"fmt"
)

// Statuses of an owner's answers: the numbers of mmq_status in mmq.h.
const (
	statusOK         = 0
	statusGap        = 4
	statusFirstError = 16
)

// Errors that a program may want to tell apart with errors.Is. All are an [*Error] with more to say.
var (
	ErrInvalidArgument = errors.New("invalid argument")
	ErrTooLarge        = errors.New("the message is too large")
	ErrFull            = errors.New("the queue or the disk is full")
	ErrNotFound        = errors.New("not found")
	ErrPoisoned        = errors.New("the queue refuses writes because a flush failed")
	ErrClosed          = errors.New("the queue is closed")
	ErrExpired         = errors.New("the lease of the delivery has ended")
	ErrNotShared       = errors.New("no owner of the queue answers")
	// ErrDisconnected: the owner has gone. What was asked may or may not have been done.
	ErrDisconnected = errors.New("the connection to the queue's owner has ended")
)

var kinds = map[uint16]error{
	16: ErrInvalidArgument, 18: ErrTooLarge, 19: ErrFull, 21: ErrNotFound, 24: ErrPoisoned,
	25: ErrClosed, 27: ErrExpired, 32: ErrNotShared,
}

// An Error is what an owner answered instead of doing what was asked.
type Error struct {
	// Status is the number of mmq_status in mmq.h.
	Status uint16
	// Name is the option, argument or operation that it is about, if any.
	Name string
	// Text says why.
	Text string
	// Numbers are those of docs/share.md, such as the bytes used of a full queue.
	Numbers [4]uint64
}

func (e *Error) Error() string {
	kind := "the owner answered with an error"
	if known := kinds[e.Status]; known != nil {
		kind = known.Error()
	}
	switch {
	case e.Status == 18:
		return fmt.Sprintf("mmq: %s: %d bytes, at most %d", kind, e.Numbers[0], e.Numbers[1])
	case e.Status == 19 && e.Text == "":
		return fmt.Sprintf("mmq: %s: %d bytes of %s %d", kind, e.Numbers[0], e.Name, e.Numbers[1])
	case e.Name != "":
		return fmt.Sprintf("mmq: %s: %s: %s", kind, e.Name, e.Text)
	default:
		return fmt.Sprintf("mmq: %s: %s", kind, e.Text)
	}
}

// Unwrap makes errors.Is(err, ErrFull) and the like work.
func (e *Error) Unwrap() error { return kinds[e.Status] }

// A Gap says that messages are missing and will never come. A read returns it once, and the next
// read goes on behind it.
type Gap struct {
	First, Last uint64
	// Cause: 1 damaged, 2 not flushed before a power cut, 3 dropped, 4 expired, 5 rejected,
	// 6 only reserved.
	Cause uint8
}

func (g *Gap) Error() string {
	causes := []string{"lost", "damaged", "not flushed before a power cut", "dropped to make room",
		"older than the maximum age", "rejected", "only reserved before a power cut"}
	cause := causes[0]
	if int(g.Cause) < len(causes) {
		cause = causes[g.Cause]
	}
	return fmt.Sprintf("mmq: messages %d to %d will never come: %s", g.First, g.Last, cause)
}

func readError(status uint16, body []byte) error {
	f := fields{rest: body}
	e := &Error{Status: status, Numbers: [4]uint64{f.u64(), f.u64(), f.u64(), f.u64()}}
	e.Name = string(f.bytes(int(f.u16())))
	e.Text = string(f.rest)
	if status == statusGap {
		return &Gap{First: e.Numbers[0], Last: e.Numbers[1], Cause: uint8(e.Numbers[2])}
	}
	return e
}
