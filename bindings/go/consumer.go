package mmq

import (
	"context"
	"encoding/binary"
	"errors"
	"time"
)

// The longest wait that one question asks for.
const slice = time.Hour

// A Consumer is a named place in the queue. Each of its messages goes to one reader, in whichever
// process.
type Consumer struct {
	client *Client
	number uint16
}

// A Message is one of the queue.
type Message struct {
	Seq  uint64
	Body []byte
}

// A Delivery is a message that waits for its acknowledgement. If the connection ends before, it
// comes again.
type Delivery struct {
	Message
	// Attempts says how often it was handed out, this time included.
	Attempts uint32

	client *Client
	id     uint64
}

// Receive waits for the next message, to be acknowledged when the work is done. When ctx ends it
// returns its error, and no message is lost. A *Gap says once that messages are missing.
func (c *Consumer) Receive(ctx context.Context) (*Delivery, error) {
	for {
		deliveries, err := c.receive(ctx, 1, slice)
		if err != nil || len(deliveries) > 0 {
			return first(deliveries), err
		}
	}
}

// ReceiveNow returns the next message, or nil when there is none.
func (c *Consumer) ReceiveNow() (*Delivery, error) {
	deliveries, err := c.receive(context.Background(), 1, 0)
	return first(deliveries), err
}

// ReceiveBatch returns up to max messages, and up to 64; none when there is none.
func (c *Consumer) ReceiveBatch(max int) ([]*Delivery, error) {
	return c.receive(context.Background(), max, 0)
}

func first(deliveries []*Delivery) *Delivery {
	if len(deliveries) == 0 {
		return nil
	}
	return deliveries[0]
}

func (c *Consumer) receive(ctx context.Context, max int, wait time.Duration) ([]*Delivery, error) {
	if max <= 0 {
		return nil, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	body := binary.LittleEndian.AppendUint32(nil, uint32(min(max, 64)))
	body = append(body, u64(uint64(wait.Milliseconds()))...)
	number, came, err := c.client.begin(callReceive, c.number, body)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { c.client.tell(callEndWait, 0, u64(number)) })
	status, bodies, err := c.client.wait(came)
	stop()
	if err != nil {
		return nil, err
	}
	if status != statusOK {
		return nil, ctx.Err()
	}
	var deliveries []*Delivery
	for _, body := range bodies {
		d := &Delivery{client: c.client}
		if d.Message, d.id, d.Attempts, err = readMessage(body); err != nil {
			return nil, err
		}
		deliveries = append(deliveries, d)
	}
	return deliveries, nil
}

// Dequeue takes the next message, or returns nil when there is none. It is gone when the owner has
// sent it; Receive loses none.
func (c *Consumer) Dequeue() (*Message, error) { return c.read(callDequeue, u64(0)) }

// Peek returns the next message without taking it, or nil when there is none.
func (c *Consumer) Peek() (*Message, error) { return c.read(callPeek, nil) }

func (c *Consumer) read(call uint16, body []byte) (*Message, error) {
	_, came, err := c.client.begin(call, c.number, body)
	if err != nil {
		return nil, err
	}
	status, bodies, err := c.client.wait(came)
	if err != nil || status != statusOK {
		return nil, err
	}
	message, _, _, err := readMessage(bodies[0])
	return &message, err
}

// Seek moves the consumer to the message with this number.
func (c *Consumer) Seek(seq uint64) error {
	_, err := c.client.ask(callSeek, c.number, u64(seq))
	return err
}

// Redelivery says when messages come again that were not acknowledged. What is 0 does not apply.
type Redelivery struct {
	// Lease: the queue takes a message back that was not acknowledged for so long.
	Lease time.Duration
	// FirstDelay: a message that was given back comes again after so long, after each further time
	// twice as long, and at most LongestDelay.
	FirstDelay, LongestDelay time.Duration
	// MaxAttempts: the message is rejected after so many deliveries.
	MaxAttempts uint32
}

// SetRedelivery sets the rules of the consumer, whoever reads it. They hold until the owner closes
// the queue.
func (c *Consumer) SetRedelivery(rules Redelivery) error {
	longest := rules.LongestDelay
	if longest == 0 {
		longest = rules.FirstDelay
	}
	body := u64(someOf(rules.Lease), someOf(rules.FirstDelay), someOf(longest), none)
	if rules.MaxAttempts > 0 {
		binary.LittleEndian.PutUint64(body[24:], uint64(rules.MaxAttempts))
	}
	_, err := c.client.ask(callSetRedelivery, c.number, body)
	return err
}

// someOf returns the milliseconds, begun ones counted, or none for 0.
func someOf(d time.Duration) uint64 {
	if d <= 0 {
		return none
	}
	return uint64((d-1)/time.Millisecond + 1)
}

func readMessage(body []byte) (Message, uint64, uint32, error) {
	f := fields{rest: body}
	seq, id, attempts, origin := f.u64(), f.u64(), f.u32(), f.u32()
	if origin&1 != 0 {
		f.bytes(32)
	}
	if f.bad {
		return Message{}, 0, 0, errors.New("mmq: the owner's answer is too short")
	}
	return Message{Seq: seq, Body: f.rest}, id, attempts, nil
}

// Ack says that the work is done: the message does not come again to this consumer.
func (d *Delivery) Ack() error {
	_, err := d.client.ask(callAck, 0, u64(d.id))
	return err
}

// Nack gives the message back, to come again as the consumer's rules say.
func (d *Delivery) Nack() error {
	_, err := d.client.ask(callNack, 0, u64(d.id, none))
	return err
}

// NackAfter gives the message back, to come again after the delay.
func (d *Delivery) NackAfter(delay time.Duration) error {
	if delay <= 0 {
		_, err := d.client.ask(callNack, 0, u64(d.id, 0))
		return err
	}
	_, err := d.client.ask(callNack, 0, u64(d.id, someOf(delay)))
	return err
}

// Extend extends the lease: it ends by from now, which is more than 0.
func (d *Delivery) Extend(by time.Duration) error {
	if by <= 0 {
		return errors.New("mmq: a lease of no time")
	}
	_, err := d.client.ask(callExtend, 0, u64(d.id, someOf(by)))
	return err
}

// Reject says that no try can help: the message becomes a dead letter, or a gap.
func (d *Delivery) Reject() error {
	_, err := d.client.ask(callReject, 0, u64(d.id))
	return err
}
