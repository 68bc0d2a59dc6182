/* 8 threads on one queue: each message reaches one of the takers once, each producer's in its order; each has its own last error. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <pthread.h>

#define EACH 4
#define MESSAGES 5000

static mmq_queue *queue;
static mmq_consumer *watcher;
static unsigned char seen[EACH][MESSAGES];
static unsigned all;

static void *produce(void *argument) {
  unsigned producer = *(unsigned *)argument, number;
  for (number = 0; number < MESSAGES; number++) {
    unsigned message[40] = {0};
    mmq_slice parts[2];
    message[0] = producer;
    message[1] = number;
    parts[0].data = message;
    parts[0].len = 8;
    parts[1].data = message + 2;
    parts[1].len = number % 100;
    OK(mmq_enqueue_parts(queue, parts, 2, NULL));
    if (number % 500 == 0) OK(mmq_flush(queue));
  }
  return NULL;
}

static void note(const unsigned *message, size_t len, unsigned *next) {
  CHECK(message[0] < EACH && message[1] < MESSAGES && len == 8 + message[1] % 100);
  CHECK(message[1] >= next[message[0]]);
  next[message[0]] = message[1] + 1;
  CHECK(__atomic_exchange_n(&seen[message[0]][message[1]], 1, __ATOMIC_RELAXED) == 0);
  __atomic_fetch_add(&all, 1, __ATOMIC_RELAXED);
}

static void *consume(void *argument) {
  unsigned mine = *(unsigned *)argument, next[EACH] = {0}, words[40];
  size_t taken = 0;
  char text[200];
  mmq_queue *none;
  /* An error of its own, which the others' errors do not touch. */
  snprintf(text, sizeof text, "%s/missing-%u/file", check_root, mine);
  {
    mmq_options *options = mmq_options_new();
    OK(mmq_options_set_create(options, false));
    ANSWERS(MMQ_NOT_FOUND, mmq_open(text, options, &none));
    mmq_options_free(options);
  }
  while (__atomic_load_n(&all, __ATOMIC_RELAXED) < EACH * MESSAGES) {
    size_t len = 0;
    mmq_message *message = NULL;
    mmq_status status;
    if (taken % 2 == 0) {
      status = mmq_dequeue_into(queue, words, sizeof words, &len, NULL);
      if (status == MMQ_OK) {
        note(words, len, next);
        taken++;
        continue;
      }
    }
    status = mmq_dequeue_timeout(queue, 10, &message);
    if (status == MMQ_TIMED_OUT) continue;
    OK(status);
    CHECK(mmq_message_len(message) <= sizeof words);
    memcpy(words, mmq_message_data(message), mmq_message_len(message));
    note(words, mmq_message_len(message), next);
    mmq_message_free(message);
    taken++;
  }
  {
    char last[400];
    mmq_last_error(last, sizeof last);
    snprintf(text, sizeof text, "missing-%u", mine);
    CHECK(strstr(last, text));
  }
  return NULL;
}

static void *watch(void *argument) {
  unsigned count = 0;
  (void)argument;
  while (count < EACH * MESSAGES) {
    mmq_message *message;
    OK(mmq_consumer_dequeue_timeout(watcher, -1, &message));
    CHECK(mmq_message_seq(message) == count);
    mmq_message_free(message);
    count++;
  }
  return NULL;
}

int main(int argc, char **argv) {
  pthread_t producers[EACH], consumers[EACH], watching;
  unsigned numbers[EACH], at, number;
  mmq_options *options = mmq_options_new();
  BEGIN(argc, argv);
  OK(mmq_options_set_arena_size(options, 65536));
  OK(mmq_open(path_of("threads"), options, &queue));
  mmq_options_free(options);
  OK(mmq_consumer_open(queue, "watcher", &watcher));
  CHECK(pthread_create(&watching, NULL, watch, NULL) == 0);
  for (at = 0; at < EACH; at++) {
    numbers[at] = at;
    CHECK(pthread_create(&producers[at], NULL, produce, &numbers[at]) == 0);
    CHECK(pthread_create(&consumers[at], NULL, consume, &numbers[at]) == 0);
  }
  for (at = 0; at < EACH; at++) {
    CHECK(pthread_join(producers[at], NULL) == 0);
    CHECK(pthread_join(consumers[at], NULL) == 0);
  }
  CHECK(pthread_join(watching, NULL) == 0);
  for (at = 0; at < EACH; at++) {
    for (number = 0; number < MESSAGES; number++) CHECK(seen[at][number]);
  }
  mmq_consumer_free(watcher);
  OK(mmq_close(queue));
  return 0;
}
