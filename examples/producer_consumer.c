/* One thread puts messages in, another takes them out as they come, waiting when there are none. */
#define _DEFAULT_SOURCE
#include <mmq.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "temporary.h"

#define MESSAGES 100000

static void tell(mmq_status status) {
  char text[512];
  mmq_last_error(text, sizeof text);
  fprintf(stderr, "%s: %s\n", mmq_status_message(status), text);
}

static void check(mmq_status status) {
  if (status == MMQ_OK) return;
  tell(status);
  exit(1);
}

static void *produce(void *queue) {
  unsigned long number;
  for (number = 0; number < MESSAGES; number++) {
    char text[64];
    int len = snprintf(text, sizeof text, "message %lu", number);
    check(mmq_enqueue((mmq_queue *)queue, text, (size_t)len, NULL));
  }
  return NULL;
}

/* The number of the next message, and the one behind the last that will be put in: the queue may have some already. */
static uint64_t first_of(mmq_queue *queue, uint64_t *end) {
  mmq_stats stats;
  stats.struct_size = sizeof stats;
  check(mmq_read_stats(queue, &stats));
  *end = stats.next_seq + MESSAGES;
  return stats.next_seq - stats.messages;
}

int main(void) {
  mmq_queue *queue;
  pthread_t producer;
  size_t bytes = 0;
  uint64_t next, end, messages = 0;
  check(mmq_open(make_temporary_dir(), NULL, &queue));
  next = first_of(queue, &end);
  if (pthread_create(&producer, NULL, produce, queue) != 0) return 1;
  while (next < end) {
    mmq_message *message;
    mmq_gap gap;
    /* Wakes as soon as a message is there; the time-out only bounds how long it sleeps. */
    mmq_status status = mmq_dequeue_timeout(queue, 1000, &message);
    if (status == MMQ_TIMED_OUT) continue;
    if (status == MMQ_GAP) { /* reported once; what lies behind still comes */
      tell(status);
      check(mmq_last_gap(queue, &gap));
      next = gap.last + 1;
      continue;
    }
    check(status);
    if (mmq_message_seq(message) != next) return 1;
    bytes += mmq_message_len(message);
    mmq_message_free(message);
    messages++;
    next++;
  }
  pthread_join(producer, NULL);
  printf("%llu messages of %zu bytes came out in order\n", (unsigned long long)messages, bytes);
  check(mmq_close(queue));
  remove_temporary_dir();
  return 0;
}
