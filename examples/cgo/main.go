// A queue of mmq in Go, by cgo: puts two messages in and takes out all that are there.
//
// With mmq installed, PKG_CONFIG_PATH=PREFIX/lib/pkgconfig and
// CGO_LDFLAGS="-Wl,-rpath,PREFIX/lib": go run examples/cgo/main.go DIR
package main

// #cgo pkg-config: mmq
// #include <mmq.h>
// #include <stdlib.h>
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"
)

// lastError is the text of this thread's last error: the goroutine must not change threads.
func lastError() string {
	var text [512]C.char
	C.mmq_last_error(&text[0], 512)
	return C.GoString(&text[0])
}

func check(status C.mmq_status) {
	if status != C.MMQ_OK {
		fmt.Fprintln(os.Stderr, lastError())
		os.Exit(1)
	}
}

func main() {
	runtime.LockOSThread()
	dir := C.CString(os.Args[1])
	defer C.free(unsafe.Pointer(dir))
	var queue *C.mmq_queue
	check(C.mmq_open(dir, nil, &queue))
	for _, text := range []string{"hello", "world"} {
		check(C.mmq_enqueue(queue, unsafe.Pointer(unsafe.StringData(text)), C.size_t(len(text)), nil))
	}
	check(C.mmq_flush(queue)) // from here on a power cut takes neither
	for {
		var message *C.mmq_message
		status := C.mmq_dequeue(queue, &message)
		if status == C.MMQ_EMPTY {
			break
		} else if status == C.MMQ_GAP { // reported once; what lies behind it still comes
			fmt.Fprintln(os.Stderr, lastError())
			continue
		}
		check(status)
		bytes := C.GoBytes(unsafe.Pointer(C.mmq_message_data(message)), C.int(C.mmq_message_len(message)))
		fmt.Printf("%d: %s\n", C.mmq_message_seq(message), bytes)
		C.mmq_message_free(message)
	}
	check(C.mmq_close(queue))
}
