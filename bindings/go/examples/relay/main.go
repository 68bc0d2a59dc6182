// Relay puts each line of standard input into a queue, and takes the lines out again in another
// goroutine with a connection of its own, as another process would.
//
//	mmq serve /tmp/jobs &
//	go run ./examples/relay /tmp/jobs < lines.txt
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"sync/atomic"

	"mmq"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: relay DIR < lines")
	}
	if err := relay(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func relay(dir string) error {
	client, err := mmq.Connect(dir)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	// Where the printed lines end, and where the last one ends once it was put in.
	var printed, last atomic.Uint64
	ended := make(chan error, 1)
	go func() { ended <- print(ctx, dir, &printed, &last) }()
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	var end uint64
	for lines.Scan() {
		seq, err := client.Put(lines.Bytes())
		if err != nil {
			return err
		}
		end = seq + 1
	}
	if err := errors.Join(lines.Err(), client.Flush()); err != nil {
		return err
	}
	last.Store(end)
	if printed.Load() >= end {
		stop()
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// print prints the lines that come, up to the last one.
func print(ctx context.Context, dir string, printed, last *atomic.Uint64) error {
	client, err := mmq.Connect(dir)
	if err != nil {
		return err
	}
	defer client.Close()
	reader, err := client.Consumer("relay")
	if err != nil {
		return err
	}
	for {
		job, err := reader.Receive(ctx)
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", job.Body)
		if err := job.Ack(); err != nil {
			return err
		}
		printed.Store(job.Seq + 1)
		if end := last.Load(); end != 0 && job.Seq+1 >= end {
			return nil
		}
	}
}
