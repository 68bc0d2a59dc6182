/* One thread puts messages in, another takes them out as they come, waiting when there are none. */
#define _DEFAULT_SOURCE
#include <mmq.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "temporary.h"

#define MESSAGES 100000

static void check(mmq_status status) {
  char text[512];
  if (status == MMQ_OK) return;
  mmq_last_error(text, sizeof text);
  fprintf(stderr, "%s: %s\n", mmq_status_message(status), text);
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

int main(void) {
  mmq_queue *queue;
  pthread_t producer;
  size_t bytes = 0;
  uint64_t expected = 0;
  check(mmq_open(make_temporary_dir(), NULL, &queue));
  if (pthread_create(&producer, NULL, produce, queue) != 0) return 1;
  while (expected < MESSAGES) {
    mmq_message *message;
    /* Wakes as soon as a message is there; the time-out only bounds how long it sleeps. */
    mmq_status status = mmq_dequeue_timeout(queue, 1000, &message);
    if (status == MMQ_TIMED_OUT) continue;
    check(status);
    if (mmq_message_seq(message) != expected) return 1;
    bytes += mmq_message_len(message);
    mmq_message_free(message);
    expected++;
  }
  pthread_join(producer, NULL);
  printf("%d messages of %zu bytes came out in order\n", MESSAGES, bytes);
  check(mmq_close(queue));
  remove_temporary_dir();
  return 0;
}
