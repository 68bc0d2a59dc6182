package mmq

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// serve starts an owner of the queue in dir, with these options: the command in MMQ_SERVE, or
// `mmq serve`.
func serve(t *testing.T, dir string, options ...string) *exec.Cmd {
	t.Helper()
	words := strings.Fields(os.Getenv("MMQ_SERVE"))
	if len(words) == 0 {
		if _, err := exec.LookPath("mmq"); err != nil {
			t.Skip("SKIPPED: no owner to test with: set MMQ_SERVE to a command such as `mmq serve`")
		}
		words = []string{"mmq", "serve"}
	}
	owner := exec.Command(words[0], append(append(words[1:], dir), options...)...)
	owner.Stderr = os.Stderr
	owner.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = owner.Process.Kill()
		_ = owner.Wait()
	})
	return owner
}

func connect(t *testing.T, dir string) *Client {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		client, err := Connect(dir)
		if err == nil {
			t.Cleanup(func() { client.Close() })
			return client
		}
		if !errors.Is(err, ErrNotShared) || time.Since(begin) > 20*time.Second {
			t.Fatal(err)
		}
	}
}

func must[T any](t *testing.T) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func TestCalls(t *testing.T) {
	dir := t.TempDir()
	serve(t, dir)
	client := connect(t, dir)
	number, delivery := must[uint64](t), must[*Delivery](t)
	long := []byte(strings.Repeat("long", 1<<20))
	if seq := number(client.Put(long)); seq != 0 {
		t.Fatal("the first number is", seq)
	}
	if seq := number(client.PutBatch([][]byte{[]byte("b"), {}, []byte("d")})); seq != 1 {
		t.Fatal("the batch begins at", seq)
	}
	workers := must[*Consumer](t)(client.Consumer("workers"))
	job := delivery(workers.Receive(context.Background()))
	if job.Seq != 0 || string(job.Body) != string(long) || job.Attempts != 1 {
		t.Fatal("received", job.Seq, len(job.Body), job.Attempts)
	}
	if err := job.Nack(); err != nil {
		t.Fatal(err)
	}
	job = delivery(workers.ReceiveNow())
	if job.Seq != 0 || job.Attempts != 2 {
		t.Fatal("after a nack", job.Seq, job.Attempts)
	}
	jobs := must[[]*Delivery](t)(workers.ReceiveBatch(10))
	for _, job := range append(jobs, job) {
		if err := errors.Join(job.Extend(time.Minute), job.Ack()); err != nil {
			t.Fatal(err)
		}
	}
	if len(jobs) != 3 {
		t.Fatal("a batch of", len(jobs))
	}
	if job := delivery(workers.ReceiveNow()); job != nil {
		t.Fatal("one too many:", job.Seq)
	}
	own := must[*Consumer](t)(client.Consumer(""))
	if message := must[*Message](t)(own.Peek()); message.Seq != 0 {
		t.Fatal("peeked", message.Seq)
	}
	if err := own.Seek(3); err != nil {
		t.Fatal(err)
	}
	if message := must[*Message](t)(own.Dequeue()); string(message.Body) != "d" {
		t.Fatal("dequeued", message.Seq)
	}
	if message := must[*Message](t)(own.Dequeue()); message != nil {
		t.Fatal("one too many:", message.Seq)
	}
	if err := errors.Join(client.Flush(), client.WaitDurable(3)); err != nil {
		t.Fatal(err)
	}
	if seq := number(client.DurableSeq()); seq != 4 {
		t.Fatal("durable below", seq)
	}
}

func TestErrors(t *testing.T) {
	dir := t.TempDir()
	if _, err := Connect(dir); !errors.Is(err, ErrNotShared) {
		t.Fatal("nobody answers:", err)
	}
	owner := serve(t, dir)
	client := connect(t, dir)
	if _, err := client.Put(make([]byte, maxMessage+1)); !errors.Is(err, ErrTooLarge) {
		t.Fatal(err)
	}
	if _, err := client.Consumer(strings.Repeat("x", 256)); !errors.Is(err, ErrInvalidArgument) {
		t.Fatal(err)
	}
	consumer := must[*Consumer](t)(client.Consumer("w"))
	var is *Error
	err := consumer.Seek(7)
	if !errors.Is(err, ErrNotFound) || !errors.As(err, &is) || is.Name != "message" {
		t.Fatal(err)
	}
	must[uint64](t)(client.Put([]byte("rejected")))
	job := must[*Delivery](t)(consumer.ReceiveNow())
	if err := job.Reject(); err != nil {
		t.Fatal(err)
	}
	var gap *Gap
	if _, err := consumer.ReceiveNow(); !errors.As(err, &gap) || gap.First != 0 || gap.Cause != 5 {
		t.Fatal("a rejected message is a gap:", err)
	}
	if err := job.Ack(); !errors.Is(err, ErrInvalidArgument) {
		t.Fatal("settled twice:", err)
	}
	_ = owner.Process.Kill()
	if _, err := consumer.Receive(context.Background()); !errors.Is(err, ErrDisconnected) {
		t.Fatal("the owner is dead:", err)
	}
	if _, err := client.Put(nil); !errors.Is(err, ErrDisconnected) {
		t.Fatal("the owner is dead:", err)
	}
}

func TestACancelledReceiveTakesNothing(t *testing.T) {
	dir := t.TempDir()
	serve(t, dir)
	client := connect(t, dir)
	workers := must[*Consumer](t)(client.Consumer("workers"))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := workers.Receive(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	must[uint64](t)(client.Put([]byte("for the next")))
	job := must[*Delivery](t)(workers.Receive(context.Background()))
	if job.Attempts != 1 {
		t.Fatal("attempts:", job.Attempts)
	}
}

func TestManyGoroutinesShareAClient(t *testing.T) {
	dir := t.TempDir()
	serve(t, dir)
	client := connect(t, dir)
	workers := must[*Consumer](t)(client.Consumer("workers"))
	const each, count = 200, 8
	ctx, done := context.WithCancel(context.Background())
	var seen sync.Map
	var left, readers sync.WaitGroup
	left.Add(each * count)
	for range count {
		go func() {
			for number := range each {
				if _, err := client.Put(fmt.Append(nil, number)); err != nil {
					t.Error(err)
				}
			}
		}()
		readers.Add(1)
		go func() {
			defer readers.Done()
			for {
				job, err := workers.Receive(ctx)
				if err != nil {
					return
				}
				if _, twice := seen.LoadOrStore(job.Seq, true); twice {
					t.Error("twice:", job.Seq)
				}
				if err := job.Ack(); err != nil {
					t.Error(err)
				}
				left.Done()
			}
		}()
	}
	left.Wait()
	done()
	readers.Wait()
}

// Either side is killed again and again: nothing that was answered is lost.
func TestKills(t *testing.T) {
	dir := t.TempDir()
	owner := serve(t, dir)
	client := connect(t, dir)
	random := rand.New(rand.NewSource(1))
	stored, got := map[string]bool{}, map[string]bool{}
	read := func() {
		workers, err := client.Consumer("workers")
		if err != nil {
			return
		}
		job, err := workers.ReceiveNow()
		if err == nil && job != nil {
			got[string(job.Body)] = true
			err = job.Ack()
		}
		if err != nil && !errors.Is(err, ErrDisconnected) {
			t.Fatal(err)
		}
	}
	const kills = 200
	for kill := range kills {
		killed := make(chan bool)
		go func() {
			time.Sleep(time.Duration(random.Intn(20)) * time.Millisecond)
			if kill%2 == 0 {
				_ = owner.Process.Kill()
				_ = owner.Wait()
			} else {
				client.Close()
			}
			close(killed)
		}()
		for number := 0; ; number++ {
			text := fmt.Sprint(kill, ".", number)
			if _, err := client.Put([]byte(text)); err != nil {
				break
			}
			stored[text] = true
			read()
		}
		<-killed
		if kill%2 == 0 {
			owner = serve(t, dir)
		}
		client = connect(t, dir)
	}
	workers := must[*Consumer](t)(client.Consumer("workers"))
	for {
		job := must[*Delivery](t)(workers.ReceiveNow())
		if job == nil {
			break
		}
		got[string(job.Body)] = true
		if err := job.Ack(); err != nil {
			t.Fatal(err)
		}
	}
	for text := range stored {
		if !got[text] {
			t.Error("lost:", text)
		}
	}
	t.Logf("%d kills: %d stored, %d came", kills, len(stored), len(got))
}
