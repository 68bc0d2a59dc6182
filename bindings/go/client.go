// Package mmq uses a queue that another process has open and shares: `mmq serve DIR`, or any
// program that opened it with Options::shared. It speaks the protocol of docs/share.md and needs
// neither cgo nor the library.
//
//	client, err := mmq.Connect("/var/spool/jobs")
//	seq, err := client.Put([]byte("resize picture 7"))
//
//	workers, err := client.Consumer("workers")
//	job, err := workers.Receive(ctx)
//	// does the work
//	err = job.Ack()
//
// Until the module is published, a go.mod of yours names where it lies:
//
//	require mmq v0.0.0
//	replace mmq => ../path/to/mmq/bindings/go
package mmq

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// How long an owner may take to answer the greeting.
const greeting = 10 * time.Second

// A Client is a connection to the process that has a queue open. Any number of goroutines may use
// it at the same time, of which 64 may wait for messages. Where the owner waits for room (on_full),
// put through a Client of its own: what is asked behind a Put that waits is answered behind it.
type Client struct {
	dir  string
	conn net.Conn

	sending sync.Mutex
	buffer  []byte

	mutex   sync.Mutex
	next    uint64
	waiting map[uint64]chan answer
	ended   error
}

// An answer has a frame for each message, and at least one.
type answer struct {
	status uint16
	bodies [][]byte
}

// Connect connects to the process that has the queue in dir open. The error is ErrNotShared when
// nobody answers.
func Connect(dir string) (*Client, error) {
	conn, err := dial(dir)
	if err != nil {
		return nil, fmt.Errorf("mmq: queue %s: %w: %v", dir, ErrNotShared, err)
	}
	c := &Client{dir: dir, conn: conn, next: 1, waiting: map[uint64]chan answer{}}
	_ = conn.SetDeadline(time.Now().Add(greeting))
	go c.read()
	hello := binary.LittleEndian.AppendUint32([]byte("mmqshare"), version)
	if _, err := c.ask(callHello, 0, hello); err != nil {
		conn.Close()
		if errors.Is(err, ErrDisconnected) {
			err = fmt.Errorf("mmq: queue %s: %w: the owner did not answer", dir, ErrNotShared)
		}
		return nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	return c, nil
}

// dial connects by the directory's descriptor where there is one: the address of a socket holds no
// more than 107 bytes.
func dial(dir string) (net.Conn, error) {
	path := filepath.Join(dir, "socket")
	if len(path) <= 107 {
		return net.Dial("unix", path)
	}
	at, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	return net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d/socket", at.Fd()))
}

// Close ends the connection. What it has in flight goes back to the queue at once.
func (c *Client) Close() error {
	c.end(net.ErrClosed)
	return nil
}

// Put puts a message in and returns its number. Once it has returned, the message survives the
// death of both processes. After ErrDisconnected it may or may not be in the queue.
func (c *Client) Put(message []byte) (uint64, error) {
	if len(message) > maxMessage {
		return 0, &Error{Status: 18, Numbers: [4]uint64{uint64(len(message)), maxMessage, none, none}}
	}
	body, err := c.ask(callEnqueue, 0, message)
	return number(body, err)
}

// PutBatch puts several messages in, all or none, and returns the first one's number. The others
// follow without a gap.
func (c *Client) PutBatch(messages [][]byte) (uint64, error) {
	body := binary.LittleEndian.AppendUint32(nil, uint32(len(messages)))
	total := 0
	for _, message := range messages {
		total += len(message)
		body = binary.LittleEndian.AppendUint32(body, uint32(len(message)))
	}
	if total > maxMessage {
		return 0, &Error{Status: 18, Numbers: [4]uint64{uint64(total), maxMessage, none, none}}
	}
	for _, message := range messages {
		body = append(body, message...)
	}
	body, err := c.ask(callEnqueueBatch, 0, body)
	return number(body, err)
}

// Flush makes everything durable that was put in before.
func (c *Client) Flush() error {
	_, err := c.ask(callFlush, 0, nil)
	return err
}

// WaitDurable waits until the message is durable.
func (c *Client) WaitDurable(seq uint64) error {
	_, err := c.ask(callWaitDurable, 0, u64(seq))
	return err
}

// DurableSeq returns the first number that is not known to be durable.
func (c *Client) DurableSeq() (uint64, error) {
	body, err := c.ask(callDurableSeq, 0, nil)
	return number(body, err)
}

// Consumer returns the consumer of that name. The first call with a name makes it, at the oldest
// message. The empty name is the queue's own consumer.
func (c *Client) Consumer(name string) (*Consumer, error) {
	if name == "" {
		return &Consumer{client: c}, nil
	}
	body, err := c.ask(callOpenConsumer, 0, append(make([]byte, 9), name...))
	if err != nil {
		return nil, err
	}
	f := fields{rest: body}
	return &Consumer{client: c, number: f.u16()}, nil
}

// RemoveConsumer removes a consumer: the queue keeps no messages for it any more. The empty name is
// the queue's own consumer.
func (c *Client) RemoveConsumer(name string) error {
	_, err := c.ask(callRemoveConsumer, 0, []byte(name))
	return err
}

// Stats are figures of a queue: the counts that mmq_stats in mmq.h explains.
type Stats struct {
	Messages, Bytes, Segments, SpareSegments, MappedArenas, MappedBytes, DiskBytes         uint64
	NextSeq, OldestSeq, DurableSeq, Enqueued, Dequeued, Consumers                          uint64
	Gaps, LostMessages, LostDamaged, LostUnflushed, LostDropped, LostExpired               uint64
	LostRejected, ReservedNumbers, Flushes, Refused, Dropped, Expired, Rejected, Unclaimed uint64
}

// Stats reads the figures of the queue.
func (c *Client) Stats() (Stats, error) {
	var stats Stats
	body, err := c.ask(callStats, 0, nil)
	if err == nil {
		// First comes how many: never fewer than this version knows.
		err = binary.Read(bytes.NewReader(body[min(4, len(body)):]), binary.LittleEndian, &stats)
	}
	return stats, err
}

func number(body []byte, err error) (uint64, error) {
	f := fields{rest: body}
	number := f.u64()
	if err == nil && f.bad {
		err = errors.New("mmq: the owner's answer is too short")
	}
	return number, err
}

// ask asks, and waits for the first frame of the answer.
func (c *Client) ask(call, consumer uint16, body []byte) ([]byte, error) {
	_, came, err := c.begin(call, consumer, body)
	if err != nil {
		return nil, err
	}
	_, bodies, err := c.wait(came)
	if err != nil {
		return nil, err
	}
	return bodies[0], nil
}

// begin sends a question. The answer comes on the channel, which is closed when the owner has gone.
func (c *Client) begin(call, consumer uint16, body []byte) (uint64, chan answer, error) {
	came := make(chan answer, 1)
	c.mutex.Lock()
	if c.ended != nil {
		defer c.mutex.Unlock()
		return 0, nil, c.disconnected()
	}
	number := c.next
	c.next++
	c.waiting[number] = came
	c.mutex.Unlock()
	if err := c.send(number, call, consumer, body); err != nil {
		c.end(err)
		return 0, nil, c.disconnected()
	}
	return number, came, nil
}

// tell sends what needs no answer.
func (c *Client) tell(call, consumer uint16, body []byte) {
	if err := c.send(0, call, consumer, body); err != nil {
		c.end(err)
	}
}

func (c *Client) send(number uint64, call, consumer uint16, body []byte) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	h := header{number: number, length: uint64(len(body)), kind: call, consumer: consumer}
	c.buffer = append(h.append(c.buffer[:0]), body...)
	_, err := c.conn.Write(c.buffer)
	if cap(c.buffer) > 1<<20 {
		c.buffer = nil
	}
	return err
}

func (c *Client) wait(came chan answer) (uint16, [][]byte, error) {
	a, isOpen := <-came
	if !isOpen {
		return 0, nil, c.disconnected()
	}
	if a.status == statusGap || a.status >= statusFirstError {
		return 0, nil, readError(a.status, a.bodies[0])
	}
	return a.status, a.bodies, nil
}

func (c *Client) disconnected() error {
	return fmt.Errorf("mmq: queue %s: %w", c.dir, ErrDisconnected)
}

// read hands each answer to who waits for it.
func (c *Client) read() {
	partial := map[uint64][][]byte{}
	for {
		h, body, err := readFrame(c.conn)
		if err != nil {
			c.end(err)
			return
		}
		bodies := append(partial[h.number], body)
		if h.more != 0 {
			partial[h.number] = bodies
			continue
		}
		delete(partial, h.number)
		c.mutex.Lock()
		came := c.waiting[h.number]
		delete(c.waiting, h.number)
		c.mutex.Unlock()
		if came != nil {
			came <- answer{status: h.kind, bodies: bodies}
		}
	}
}

// end ends the connection, and with it every call that waits.
func (c *Client) end(why error) {
	c.conn.Close()
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.ended == nil {
		c.ended = why
	}
	for number, came := range c.waiting {
		close(came)
		delete(c.waiting, number)
	}
}
