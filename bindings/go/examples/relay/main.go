// Relay puts each line of standard input into a queue. Another process, which it starts, takes the
// lines out again and prints them.
//
//	mmq serve /tmp/jobs &
//	go run ./examples/relay /tmp/jobs < lines.txt
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"sync/atomic"

	"mmq"
)

func main() {
	log.SetFlags(0)
	var err error
	switch {
	case len(os.Args) == 2:
		err = put(os.Args[1])
	case len(os.Args) == 3 && os.Args[1] == "take":
		err = take(os.Args[2])
	default:
		err = errors.New("usage: relay DIR < lines, or: relay take DIR")
	}
	if err != nil {
		log.Fatal(err)
	}
}

// put puts the lines in, and tells the process that takes them behind which number they end.
func put(dir string) error {
	client, err := mmq.Connect(dir)
	if err != nil {
		return err
	}
	defer client.Close()
	program, err := os.Executable()
	if err != nil {
		return err
	}
	taker := exec.Command(program, "take", dir)
	taker.Stdout, taker.Stderr = os.Stdout, os.Stderr
	tell, err := taker.StdinPipe()
	if err != nil {
		return err
	}
	if err := taker.Start(); err != nil {
		return err
	}
	end, err := putAll(client)
	if err == nil {
		_, err = fmt.Fprintln(tell, end)
	}
	return errors.Join(err, tell.Close(), taker.Wait())
}

// putAll puts all lines in, and returns where they end.
func putAll(client *mmq.Client) (end uint64, err error) {
	lines := bufio.NewReader(os.Stdin)
	for {
		line, ended := lines.ReadBytes('\n')
		if len(line) > 0 {
			seq, err := client.Put(bytes.TrimSuffix(line, []byte{'\n'}))
			if err != nil {
				return end, err
			}
			end = seq + 1
		}
		if ended == io.EOF {
			return end, client.Flush()
		}
		if ended != nil {
			return end, ended
		}
	}
}

// take prints the lines that come, up to where they end by what standard input says.
func take(dir string) error {
	client, err := mmq.Connect(dir)
	if err != nil {
		return err
	}
	defer client.Close()
	reader, err := client.Consumer("relay")
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	// Where the printed lines end, and where all do.
	var printed, all atomic.Uint64
	go func() {
		var end uint64
		_, _ = fmt.Fscan(os.Stdin, &end)
		all.Store(end)
		if printed.Load() >= end {
			stop()
		}
	}()
	for {
		job, err := reader.Receive(ctx)
		if errors.Is(err, context.Canceled) {
			return nil
		}
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", job.Body)
		if err := job.Ack(); err != nil {
			return err
		}
		printed.Store(job.Seq + 1)
		if end := all.Load(); end != 0 && job.Seq+1 >= end {
			return nil
		}
	}
}
