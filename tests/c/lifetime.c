/* A message outlives later reads, later writes over the same files, its consumer, and the queue; and is freed by another thread. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <pthread.h>

#define HELD 40
#define LATER 400

static void *free_it(void *message) {
  CHECK(holds(mmq_message_data(message), 39, mmq_message_len(message)));
  mmq_message_free(message);
  return NULL;
}

int main(int argc, char **argv) {
  static unsigned char bytes[20000];
  mmq_options *options = mmq_options_new();
  mmq_queue *queue, *again;
  mmq_consumer *consumer;
  mmq_message *held[HELD], *peeked, *message;
  const unsigned char *data[HELD];
  unsigned long long number;
  pthread_t thread;
  BEGIN(argc, argv);
  OK(mmq_options_set_arena_size(options, 65536));
  OK(mmq_open(path_of("lifetime"), options, &queue));
  OK(mmq_consumer_open(queue, "all", &consumer));
  for (number = 0; number < HELD; number++) {
    size_t len = (size_t)(number * 497 % 20000);
    fill(bytes, number, len);
    OK(mmq_enqueue(queue, bytes, len, NULL));
  }
  OK(mmq_peek(queue, &peeked));
  for (number = 0; number < HELD; number++) {
    OK(mmq_dequeue(queue, &held[number]));
    data[number] = mmq_message_data(held[number]);
  }
  for (number = 0; number < LATER; number++) {
    fill(bytes, number, 15000);
    OK(mmq_enqueue(queue, bytes, 15000, NULL));
    OK(mmq_dequeue(queue, &message));
    mmq_message_free(message);
    do OK(mmq_consumer_dequeue(consumer, &message));
    while (mmq_message_seq(message) < number && (mmq_message_free(message), 1));
    mmq_message_free(message);
  }
  mmq_consumer_free(consumer);
  OK(mmq_close(queue));
  OK(mmq_open(path_of("lifetime"), options, &again));
  mmq_options_free(options);
  for (number = 0; number < LATER; number++) OK(mmq_enqueue(again, bytes, sizeof bytes, NULL));
  CHECK(mmq_message_seq(peeked) == 0 && mmq_message_len(peeked) == 0);
  mmq_message_free(peeked);
  for (number = 0; number < HELD; number++) {
    size_t len = (size_t)(number * 497 % 20000);
    CHECK(mmq_message_seq(held[number]) == number && mmq_message_len(held[number]) == len);
    CHECK(mmq_message_data(held[number]) == data[number] && holds(data[number], number, len));
  }
  CHECK(pthread_create(&thread, NULL, free_it, held[39]) == 0 && pthread_join(thread, NULL) == 0);
  for (number = 0; number < 39; number++) mmq_message_free(held[number]);
  OK(mmq_close(again));
  return 0;
}
