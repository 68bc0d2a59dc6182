/* Batches, looking ahead, and what a queue knows of its consumers. */
#include "check.h"

/* Iterators look, from the next message on, and consume nothing. */
static void ahead(mmq_queue *queue) {
  mmq_iter *iter, *of_consumer;
  mmq_consumer *consumer;
  mmq_message *message = NULL, *held;
  uint64_t number, len = 0;
  mmq_gap gap;
  OK(mmq_consumer_open(queue, "ahead", &consumer));
  OK(mmq_iter_open(queue, &iter));
  OK(mmq_consumer_iter_open(consumer, &of_consumer));
  for (number = 0; number < 10; number++) {
    OK(mmq_iter_next(iter, &message));
    CHECK(mmq_message_seq(message) == number && holds(mmq_message_data(message), number, 100));
    mmq_message_free(message);
  }
  message = NULL;
  ANSWERS(MMQ_EMPTY, mmq_iter_next(iter, &message));
  ANSWERS(MMQ_EMPTY, mmq_iter_last_gap(iter, &gap));
  CHECK(message == NULL);
  OK(mmq_len(queue, &len));
  CHECK(len == 10);
  OK(mmq_enqueue(queue, "later", 5, &number));
  OK(mmq_iter_next(iter, &message));
  CHECK(mmq_message_seq(message) == number && mmq_message_len(message) == 5);
  mmq_message_free(message);

  /* What is taken meanwhile is passed over. */
  OK(mmq_iter_next(of_consumer, &message));
  CHECK(mmq_message_seq(message) == 0);
  mmq_message_free(message);
  OK(mmq_consumer_seek(consumer, 7));
  OK(mmq_iter_next(of_consumer, &held));
  CHECK(mmq_message_seq(held) == 7);
  OK(mmq_consumer_remove(queue, "ahead"));
  message = NULL;
  ANSWERS(MMQ_NOT_FOUND, mmq_iter_next(of_consumer, &message));
  ANSWERS(MMQ_EMPTY, mmq_iter_next(of_consumer, &message));
  CHECK(message == NULL && holds(mmq_message_data(held), 7, 100));
  mmq_message_free(held);
  mmq_iter_free(of_consumer);
  mmq_consumer_free(consumer);
  mmq_iter_free(iter);
}

static void batches(mmq_queue *queue) {
  mmq_message *batch[8] = {NULL};
  mmq_consumer *consumer;
  size_t count = 42, at;
  OK(mmq_consumer_open(queue, "batches", &consumer));
  OK(mmq_dequeue_batch(queue, NULL, 0, &count));
  CHECK(count == 0);
  OK(mmq_dequeue_batch(queue, batch, 4, &count));
  CHECK(count == 4 && batch[4] == NULL);
  for (at = 0; at < count; at++) {
    CHECK(mmq_message_seq(batch[at]) == at && holds(mmq_message_data(batch[at]), at, 100));
    mmq_message_free(batch[at]);
    batch[at] = NULL;
  }
  /* Room that is never touched may be claimed. */
  OK(mmq_dequeue_batch(queue, batch, SIZE_MAX, &count));
  CHECK(count == 7 && batch[7] == NULL && mmq_message_seq(batch[6]) == 10);
  for (at = 0; at < count; at++) mmq_message_free(batch[at]);
  count = 42;
  ANSWERS(MMQ_EMPTY, mmq_dequeue_batch(queue, batch, 8, &count));
  CHECK(count == 42);
  OK(mmq_consumer_dequeue_batch(consumer, batch, 8, &count));
  CHECK(count == 8 && mmq_message_seq(batch[7]) == 7);
  for (at = 0; at < count; at++) mmq_message_free(batch[at]);
  mmq_consumer_free(consumer);
}

/* A gap behind the first message of a batch comes with the next call; an iterator reports it without counting it. */
static void gaps(void) {
  mmq_options *options = mmq_options_new();
  mmq_queue *queue;
  mmq_iter *iter;
  mmq_message *batch[3], *message = NULL;
  mmq_stats stats;
  mmq_gap gap = {0, 0, MMQ_GAP_EXPIRED}, seen = {0, 0, MMQ_GAP_EXPIRED};
  unsigned char bytes[1000] = {0};
  size_t count = 42;
  uint64_t seq = 0;
  OK(mmq_options_set_arena_size(options, 4096));
  OK(mmq_options_set_max_bytes(options, 128 * 1024));
  OK(mmq_options_set_on_full(options, MMQ_DROP_OLDEST, 0));
  OK(mmq_open(path_of("gaps"), options, &queue));
  mmq_options_free(options);
  OK(mmq_enqueue(queue, bytes, sizeof bytes, NULL));
  OK(mmq_peek(queue, &message));
  mmq_message_free(message);
  while (seq < 300) OK(mmq_enqueue(queue, bytes, sizeof bytes, &seq));
  OK(mmq_iter_open(queue, &iter));
  message = NULL;
  ANSWERS(MMQ_GAP, mmq_iter_next(iter, &message));
  OK(mmq_iter_last_gap(iter, &seen));
  CHECK(seen.first == 0 && seen.cause == MMQ_GAP_DROPPED && message == NULL);
  stats.struct_size = sizeof stats;
  OK(mmq_read_stats(queue, &stats));
  CHECK(stats.gaps == 0);
  OK(mmq_iter_next(iter, &message));
  CHECK(mmq_message_seq(message) == seen.last + 1);
  mmq_message_free(message);
  mmq_iter_free(iter);
  ANSWERS(MMQ_GAP, mmq_dequeue_batch(queue, batch, 3, &count));
  OK(mmq_last_gap(queue, &gap));
  CHECK(count == 42 && gap.first == seen.first && gap.last == seen.last && gap.cause == seen.cause);
  OK(mmq_dequeue_batch(queue, batch, 3, &count));
  CHECK(count == 3 && mmq_message_seq(batch[0]) == gap.last + 1);
  while (count > 0) mmq_message_free(batch[--count]);
  OK(mmq_close(queue));
}

static void names(mmq_queue *queue) {
  static const char expected[] = "batches\0one\0\xc3\xa4";
  mmq_consumer *one, *two;
  char buf[64];
  size_t len = 42;
  bool empty = true;
  CHECK(strcmp(mmq_path(queue), path_of("ahead")) == 0);
  OK(mmq_consumer_open(queue, "\xc3\xa4", &two));
  OK(mmq_consumer_open(queue, "one", &one));
  CHECK(strcmp(mmq_consumer_name(one), "one") == 0 && strcmp(mmq_consumer_name(two), "\xc3\xa4") == 0);
  OK(mmq_consumer_is_empty(one, &empty));
  CHECK(!empty);
  OK(mmq_consumer_seek(one, 11));
  OK(mmq_consumer_is_empty(one, &empty));
  CHECK(empty);
  ANSWERS(MMQ_BUFFER_TOO_SMALL, mmq_consumers(queue, NULL, 0, &len));
  CHECK(len == sizeof expected);
  memset(buf, 'b', sizeof buf);
  ANSWERS(MMQ_BUFFER_TOO_SMALL, mmq_consumers(queue, buf, sizeof expected - 1, &len));
  CHECK(buf[0] == 'b');
  OK(mmq_consumers(queue, buf, sizeof expected, &len));
  CHECK(len == sizeof expected && memcmp(buf, expected, len) == 0 && buf[len] == 'b');
  OK(mmq_close(queue));
  CHECK(strcmp(mmq_consumer_name(two), "\xc3\xa4") == 0 && mmq_path(queue) == NULL);
  mmq_consumer_free(one);
  mmq_consumer_free(two);
  CHECK(mmq_consumer_name(two) == NULL);
}

int main(int argc, char **argv) {
  mmq_options *options = mmq_options_new();
  mmq_queue *queue;
  unsigned char bytes[100];
  unsigned number;
  size_t len = 42;
  BEGIN(argc, argv);
  OK(mmq_options_set_arena_size(options, 65536));
  OK(mmq_open(path_of("ahead"), options, &queue));
  mmq_options_free(options);
  OK(mmq_consumers(queue, NULL, 0, &len));
  CHECK(len == 0);
  for (number = 0; number < 10; number++) {
    fill(bytes, number, sizeof bytes);
    OK(mmq_enqueue(queue, bytes, sizeof bytes, NULL));
  }
  ahead(queue);
  batches(queue);
  gaps();
  names(queue);
  return 0;
}
