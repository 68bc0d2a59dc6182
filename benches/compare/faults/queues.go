// The queues in Go for benches/compare/faults.py, which says what is read and written here.
//
//	queues QUEUE put|take DIR FIRST END
package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/VictoriaMetrics/VictoriaMetrics/lib/logger"
	"github.com/VictoriaMetrics/VictoriaMetrics/lib/persistentqueue"
	"github.com/grandecola/bigqueue"
	"github.com/nsqio/go-diskqueue"
)

type queue struct {
	put   func([]byte) error
	take  func() ([]byte, error) // no bytes and no error: empty
	close func() error
}

// As `message` in faults.py.
func message(number uint64) []byte {
	bytes := binary.LittleEndian.AppendUint64(nil, number)
	x := number
	for range 56 + number*7919%961 {
		x = x*6364136223846793005 + 1442695040888963407
		bytes = append(bytes, byte(x>>56))
	}
	return bytes
}

func frame(bytes []byte) {
	os.Stdout.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(bytes))), bytes...))
}

func told(text string) {
	os.Stdout.Write([]byte{255, 255, 255, 255})
	frame([]byte(text))
}

// within gives what a call that may wait for ever gives within two seconds.
func within(take func() []byte) ([]byte, error) {
	got := make(chan []byte, 1)
	go func() { got <- take() }()
	select {
	case bytes := <-got:
		return bytes, nil
	case <-time.After(2 * time.Second):
		return nil, nil
	}
}

func open(name, dir string, taking bool) (queue, error) {
	switch name {
	case "bigqueue":
		q, err := bigqueue.NewMmapQueue(dir)
		if err != nil {
			return queue{}, err
		}
		put := func(bytes []byte) error {
			if err := q.Enqueue(bytes); err != nil {
				return err
			}
			return q.Flush()
		}
		take := func() ([]byte, error) {
			bytes, err := q.Dequeue()
			if errors.Is(err, bigqueue.ErrEmptyQueue) {
				return nil, nil
			}
			if err == nil && bytes == nil {
				bytes = []byte{}
			}
			return bytes, err
		}
		return queue{put, take, q.Close}, nil
	case "go-diskqueue":
		log := func(level diskqueue.LogLevel, format string, values ...interface{}) {
			if taking && level >= diskqueue.WARN {
				told(fmt.Sprintf(format, values...))
			}
		}
		q := diskqueue.New("queue", dir, 100<<20, 1, math.MaxInt32/2, 1, 2*time.Second, log)
		take := func() ([]byte, error) {
			select {
			case bytes := <-q.ReadChan():
				return bytes, nil
			case <-time.After(2 * time.Second):
				return nil, nil
			}
		}
		return queue{q.Put, take, q.Close}, nil
	case "vmagent":
		logger.SetOutputForTests(os.Stderr)
		q := persistentqueue.MustOpenFastQueue(dir, "queue", 0, 0, false)
		put := func(bytes []byte) error {
			if !q.TryWriteBlock(bytes) {
				return errors.New("TryWriteBlock refused")
			}
			return nil
		}
		take := func() ([]byte, error) {
			return within(func() []byte { bytes, _ := q.MustReadBlock(nil); return bytes })
		}
		return queue{put, take, func() error { q.MustClose(); return nil }}, nil
	}
	return queue{}, errors.New("no queue " + name)
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	flag.Parse() // which vmagent's code insists on
	name, what, dir := os.Args[1], os.Args[2], os.Args[3]
	first, err := strconv.ParseUint(os.Args[4], 10, 64)
	must(err)
	end, err := strconv.ParseUint(os.Args[5], 10, 64)
	must(err)
	q, err := open(name, dir, what == "take")
	must(err)
	if what == "put" {
		input := bufio.NewReader(os.Stdin)
		for number := first; number < end; number++ {
			for err := q.put(message(number)); err != nil; err = q.put(message(number)) {
				fmt.Println("!" + strings.ReplaceAll(err.Error(), "\n", " "))
				input.ReadString('\n')
			}
			fmt.Println("+")
		}
		fmt.Println(".")
		input.ReadString('\n')
	}
	for failed := 0; what == "take" && failed < 100; {
		bytes, err := q.take()
		if err != nil {
			told(err.Error())
			failed++
		} else if bytes == nil {
			break
		} else {
			frame(bytes)
		}
	}
	must(q.close())
}
