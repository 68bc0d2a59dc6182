/* An event loop: one thread waits with poll for messages and for something else, here a byte in a
 * pipe. A second thread puts the messages in. */
#define _DEFAULT_SOURCE
#include <mmq.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>

#include "temporary.h"

#define MESSAGES 1000

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
  int number;
  for (number = 0; number < MESSAGES; number++) {
    check(mmq_enqueue((mmq_queue *)queue, &number, sizeof number, NULL));
    if (number % 100 == 0) usleep(1000);
  }
  return NULL;
}

int main(void) {
  mmq_queue *queue;
  struct pollfd sources[2];
  pthread_t producer;
  int other[2], messages = 0, lost = 0, others = 0;
  check(mmq_open(make_temporary_dir(), NULL, &queue));
  if (pipe(other) != 0 || write(other[1], "x", 1) != 1) return 1;
  check(mmq_ready_fd(queue, &sources[0].fd)); /* the library's: do not read from it or close it */
  sources[1].fd = other[0];
  sources[0].events = sources[1].events = POLLIN;
  if (pthread_create(&producer, NULL, produce, queue) != 0) return 1;

  while (messages + lost < MESSAGES || others < 1) {
    char byte;
    if (poll(sources, 2, -1) < 0) return 1;
    if (sources[0].revents) {
      mmq_message *message;
      mmq_status status;
      /* Takes all messages: the descriptor stays readable until the queue is empty. A gap comes once;
       * the messages behind it still come. */
      while ((status = mmq_dequeue(queue, &message)) == MMQ_OK || status == MMQ_GAP) {
        if (status == MMQ_GAP) {
          mmq_gap gap;
          tell(status);
          check(mmq_last_gap(queue, &gap));
          lost += (int)(gap.last - gap.first + 1);
          continue;
        }
        mmq_message_free(message);
        messages++;
      }
      if (status != MMQ_EMPTY) check(status);
    }
    if (sources[1].revents && read(other[0], &byte, 1) == 1) others++;
  }
  pthread_join(producer, NULL);
  printf("the loop saw %d messages and %d other event\n", messages, others);
  check(mmq_close(queue));
  remove_temporary_dir();
  return 0;
}
