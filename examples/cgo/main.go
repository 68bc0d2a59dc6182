// A queue of mmq in Go, by cgo: puts two messages in, and takes out all that are there. With mmq
// installed under PREFIX, PKG_CONFIG_PATH=PREFIX/lib/pkgconfig and
// CGO_LDFLAGS=-Wl,-rpath,PREFIX/lib: go run examples/cgo/main.go DIR
package main

// #cgo pkg-config: mmq
// #include <mmq.h>
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"
)

func tell() { // what this thread's last error says
	var text [512]C.char
	C.mmq_last_error(&text[0], C.size_t(len(text)))
	fmt.Fprintln(os.Stderr, C.GoString(&text[0]))
}

func check(status C.mmq_status) {
	if status != C.MMQ_OK {
		tell()
		os.Exit(1)
	}
}

func main() {
	runtime.LockOSThread() // the last error is the thread's, and goroutines change threads
	var queue *C.mmq_queue
	check(C.mmq_open(C.CString(os.Args[1]), nil, &queue))
	for _, text := range []string{"hello", "world"} {
		check(C.mmq_enqueue(queue, unsafe.Pointer(unsafe.StringData(text)), C.size_t(len(text)), nil))
	}
	check(C.mmq_flush(queue)) // from here on a power cut takes neither
	var message *C.mmq_message
	for status := C.mmq_dequeue(queue, &message); status != C.MMQ_EMPTY; status = C.mmq_dequeue(queue, &message) {
		if status == C.MMQ_GAP { // reported once; what lies behind it still comes
			tell()
			continue
		}
		check(status)
		bytes := C.GoBytes(unsafe.Pointer(C.mmq_message_data(message)), C.int(C.mmq_message_len(message)))
		fmt.Printf("%d: %s\n", C.mmq_message_seq(message), bytes)
		C.mmq_message_free(message)
	}
	check(C.mmq_close(queue))
}
