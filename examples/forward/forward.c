/* An edge in C: puts messages into a queue, and forwards them meanwhile. It is the same over any
 * outage of the server, or of this program: each message arrives once.
 *
 *     mmq-install --prefix PREFIX --forward nats,redis
 *     cc forward.c $(pkg-config --cflags --libs mmq) -Wl,-rpath,PREFIX/lib -o forward
 *     ./forward /tmp/edge redis://127.0.0.1 events 1000      # the key, or for NATS the stream
 */
#include <mmq_forward.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failed(const char *what) {
  char text[1024];
  mmq_last_error(text, sizeof text);
  fprintf(stderr, "%s: %s\n", what, text);
  return 1;
}

static void tell(mmq_forwarder *forwarder) {
  mmq_forward_progress progress;
  char text[512];
  progress.struct_size = sizeof progress;
  if (mmq_forwarder_read_progress(forwarder, &progress, text, sizeof text) != MMQ_OK) return;
  printf("%llu acknowledged, %llu to go. %s\n", (unsigned long long)progress.acknowledged,
         (unsigned long long)progress.lag, text);
}

int main(int argc, char **argv) {
  mmq_forward_options options = {0};
  mmq_forwarder *forwarder;
  mmq_queue *queue;
  mmq_status status;
  long number, count = argc == 5 ? atol(argv[4]) : -1;
  if (count < 0) return fprintf(stderr, "usage: forward DIR URL KEY|STREAM COUNT\n"), 2;

  options.struct_size = sizeof options;
  if (strncmp(argv[2], "redis", 5) == 0) {
    options.key = argv[3];
  } else {
    options.stream = argv[3];
  }
  options.password = getenv("PASSWORD"); /* of the user in the URL; no error text has it */

  if (mmq_open(argv[1], NULL, &queue) != MMQ_OK) return failed("open");
  if (mmq_forwarder_new(queue, argv[2], &options, &forwarder) != MMQ_OK) return failed("forward");
  if (mmq_forwarder_run(forwarder, MMQ_UNTIL_STOPPED) != MMQ_OK) return failed("forward");
  for (number = 0; number < count; number++) {
    char reading[64];
    int len = snprintf(reading, sizeof reading, "reading %ld", number);
    if (mmq_enqueue(queue, reading, (size_t)len, NULL) != MMQ_OK) return failed("enqueue");
  }

  /* The rest: a real program would go on for ever. */
  if (mmq_forwarder_stop(forwarder) != MMQ_OK) return failed("stop");
  status = mmq_forwarder_wait(forwarder, -1);
  if (status == MMQ_OK) status = mmq_forwarder_run(forwarder, MMQ_UNTIL_EMPTY);
  if (status != MMQ_OK) return failed("forward"); /* MMQ_FAR_SIDE: a person must act */
  while ((status = mmq_forwarder_wait(forwarder, 1000)) == MMQ_TIMED_OUT) tell(forwarder);
  if (status != MMQ_OK) return failed("forward");
  tell(forwarder);
  mmq_forwarder_free(forwarder); /* before the queue */
  return mmq_close(queue) == MMQ_OK ? 0 : failed("close");
}
