package mmq

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Go answers as tests/conformance.json says, as all languages do.
func TestConformance(t *testing.T) {
	text := must[[]byte](t)(os.ReadFile("../../tests/conformance.json"))
	var file struct{ Scenarios map[string][][]string }
	if err := json.Unmarshal(text, &file); err != nil || len(file.Scenarios) == 0 {
		t.Fatal("no scenarios:", err)
	}
	for name, steps := range file.Scenarios {
		t.Run(name, func(t *testing.T) {
			s := &speaker{t: t, dir: filepath.Join(t.TempDir(), "queue")}
			s.consumers, s.deliveries = map[string]*Consumer{}, map[string]*Delivery{}
			for _, step := range steps {
				if len(step) == 3 && step[2] == "owner" {
					continue
				}
				words := strings.Split(step[0], " ")
				if answer := s.answer(words[0], words[1:]); answer != step[1] {
					t.Fatalf("%s: %s, and not %s", step[0], answer, step[1])
				}
			}
		})
	}
}

// A speaker is the program that a scenario stands for, and starts and ends the queue's owner.
type speaker struct {
	t          *testing.T
	dir        string
	owner      *exec.Cmd
	client     *Client
	consumers  map[string]*Consumer
	deliveries map[string]*Delivery
}

func (s *speaker) answer(call string, words []string) string {
	switch call {
	case "open":
		var options []string
		for _, word := range words {
			options = append(options, "--"+strings.ReplaceAll(word, "_", "-"))
		}
		s.owner = serve(s.t, s.dir, options...)
		s.client = connect(s.t, s.dir)
		s.consumers["-"] = must[*Consumer](s.t)(s.client.Consumer(""))
		return "ok"
	case "close":
		if err := s.owner.Process.Signal(syscall.SIGTERM); err != nil {
			s.t.Fatal(err)
		}
		_ = s.owner.Wait()
		if status := s.owner.ProcessState.ExitCode(); status != 128+int(syscall.SIGTERM) {
			s.t.Fatal("the owner ended with status", status)
		}
		return "ok"
	case "damage":
		path := filepath.Join(s.dir, "segment-00000000")
		file := must[[]byte](s.t)(os.ReadFile(path))
		file[bytes.Index(file, []byte(words[0]))] ^= 1
		return told(os.WriteFile(path, file, 0o600))
	case "enqueue":
		return toldNumber(s.client.Put(decoded(words[0])))
	case "enqueue_batch":
		var messages [][]byte
		for _, word := range words {
			messages = append(messages, decoded(word))
		}
		return toldNumber(s.client.PutBatch(messages))
	case "flush":
		return told(s.client.Flush())
	case "durable_seq":
		return toldNumber(s.client.DurableSeq())
	case "wait_durable":
		return told(s.client.WaitDurable(s.number(words[0])))
	case "stats":
		a, err := s.client.Stats()
		if err != nil {
			return told(err)
		}
		return fmt.Sprint("stats ", a.Messages, a.NextSeq, a.Enqueued, a.Dequeued, a.Consumers,
			a.Gaps, a.LostMessages, a.Refused, a.Rejected)
	case "consumer":
		consumer, err := s.client.Consumer(string(decoded(words[1])))
		s.consumers[words[0]] = consumer
		return told(err)
	case "remove_consumer":
		return told(s.client.RemoveConsumer(string(decoded(words[0]))))
	case "peek", "dequeue", "seek", "redelivery", "receive":
		return s.read(s.consumers[words[0]], call, words)
	}
	return s.settle(s.deliveries[words[0]], call, words)
}

func (s *speaker) read(consumer *Consumer, call string, words []string) string {
	switch call {
	case "peek":
		return toldMessage(consumer.Peek())
	case "dequeue":
		return toldMessage(consumer.Dequeue())
	case "seek":
		return told(consumer.Seek(s.number(words[1])))
	case "redelivery":
		rules := Redelivery{Lease: s.ms(words[1]), FirstDelay: s.ms(words[2])}
		rules.MaxAttempts = uint32(s.number(words[3]))
		return told(consumer.SetRedelivery(rules))
	default:
		receive := consumer.ReceiveNow
		if wait := s.ms(words[2]); wait > 0 {
			ctx, cancel := context.WithTimeout(context.Background(), wait)
			defer cancel()
			receive = func() (*Delivery, error) { return consumer.Receive(ctx) }
		}
		d, err := receive()
		if err == nil && d == nil {
			return "none"
		} else if err != nil {
			return told(err)
		}
		s.deliveries[words[1]] = d
		return fmt.Sprint("delivery ", d.Seq, d.Attempts, " ", encoded(d.Body))
	}
}

func (s *speaker) settle(delivery *Delivery, call string, words []string) string {
	switch call {
	case "ack":
		return told(delivery.Ack())
	case "nack":
		return told(delivery.Nack())
	case "nack_after":
		return told(delivery.NackAfter(s.ms(words[1])))
	case "extend":
		return told(delivery.Extend(s.ms(words[1])))
	case "reject":
		return told(delivery.Reject())
	}
	return "no such call"
}

func (s *speaker) number(word string) uint64 {
	return must[uint64](s.t)(strconv.ParseUint(word, 10, 64))
}

func (s *speaker) ms(word string) time.Duration {
	return time.Duration(s.number(word)) * time.Millisecond
}

func told(err error) string {
	var gap *Gap
	var is *Error
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &gap):
		return fmt.Sprint("gap ", gap.First, gap.Last, gap.Cause)
	case errors.As(err, &is):
		return fmt.Sprint("error ", is.Status)
	case errors.Is(err, context.DeadlineExceeded):
		return "none"
	}
	return err.Error()
}

func toldNumber(number uint64, err error) string {
	if err != nil {
		return told(err)
	}
	return fmt.Sprint("ok ", number)
}

func toldMessage(message *Message, err error) string {
	switch {
	case err != nil:
		return told(err)
	case message == nil:
		return "none"
	}
	return fmt.Sprint("message ", message.Seq, " ", encoded(message.Body))
}

func decoded(word string) []byte {
	if count, of, repeats := strings.Cut(word, "*"); repeats {
		many, _ := strconv.Atoi(count)
		return bytes.Repeat([]byte(of), many)
	}
	message := []byte{}
	for at := 0; at < len(word) && word != "%"; at++ {
		if word[at] != '%' {
			message = append(message, word[at])
			continue
		}
		one, _ := strconv.ParseUint(word[at+1:at+3], 16, 8)
		message = append(message, byte(one))
		at += 2
	}
	return message
}

func encoded(message []byte) string {
	if len(message) == 0 {
		return "%"
	}
	if len(message) > 64 && len(bytes.Trim(message, string(message[:1]))) == 0 {
		return fmt.Sprintf("%d*%c", len(message), message[0])
	}
	word := ""
	for _, one := range message {
		if one >= 'a' && one <= 'z' {
			word += string(one)
		} else {
			word += fmt.Sprintf("%%%02x", one)
		}
	}
	return word
}
