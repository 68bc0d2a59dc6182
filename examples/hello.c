/* The smallest program: put two messages in, close, open again, take them out. */
#define _DEFAULT_SOURCE
#include <mmq.h>
#include <stdio.h>

#include "temporary.h"

static int failed(const char *what) {
  char text[512];
  mmq_last_error(text, sizeof text);
  fprintf(stderr, "%s: %s\n", what, text);
  return 1;
}

int main(void) {
  const char *dir = make_temporary_dir(); /* a real program names a directory of its own */
  mmq_queue *queue;
  mmq_message *message;
  mmq_status status;

  if (mmq_open(dir, NULL, &queue) != MMQ_OK) return failed("open");
  if (mmq_enqueue(queue, "hello", 5, NULL) != MMQ_OK) return failed("enqueue");
  if (mmq_enqueue(queue, "world", 5, NULL) != MMQ_OK) return failed("enqueue");
  if (mmq_close(queue) != MMQ_OK) return failed("close");

  if (mmq_open(dir, NULL, &queue) != MMQ_OK) return failed("open");
  while ((status = mmq_dequeue(queue, &message)) == MMQ_OK || status == MMQ_GAP) {
    if (status == MMQ_GAP) { /* damaged messages, for instance: reported once; what lies behind them still comes */
      failed("dequeue");
      continue;
    }
    printf("%llu: %.*s\n", (unsigned long long)mmq_message_seq(message), (int)mmq_message_len(message),
           (const char *)mmq_message_data(message));
    mmq_message_free(message);
  }
  if (status != MMQ_EMPTY) return failed("dequeue");
  if (mmq_close(queue) != MMQ_OK) return failed("close");
  remove_temporary_dir();
  return 0;
}
