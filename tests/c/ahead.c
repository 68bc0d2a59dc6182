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

static void batches_into_a_buffer(mmq_queue *queue) {
  char buf[1 << 10];
  mmq_copied_message got[8] = {{NULL, 0, 0}};
  mmq_consumer *consumer;
  size_t count = 42, len = 42, at;
  OK(mmq_consumer_open_at(queue, "copies", MMQ_START_END, 0, &consumer));
  OK(mmq_dequeue_batch_into(queue, NULL, 0, NULL, 0, &count, &len));
  CHECK(count == 0 && len == 0);
  count = 42;
  ANSWERS(MMQ_EMPTY, mmq_dequeue_batch_into(queue, buf, sizeof buf, got, 8, &count, &len));
  CHECK(count == 42 && len == 0);
  for (at = 0; at < 5; at++) OK(mmq_enqueue(queue, "0123456789abcdef", at * 4, NULL));
  OK(mmq_dequeue_batch_into(queue, NULL, 0, got, 8, &count, &len));
  CHECK(count == 1 && len == 0 && got[0].len == 0 && got[0].seq == 11);
  /* The third message does not fit behind the others, and stays. */
  memset(buf, '-', sizeof buf);
  OK(mmq_dequeue_batch_into(queue, buf, 23, got, 8, &count, &len));
  CHECK(count == 2 && len == 12 && memcmp(buf, "012301234567---", 15) == 0 && got[2].data == NULL);
  CHECK(got[0].data == buf && got[0].len == 4 && got[0].seq == 12);
  CHECK(got[1].data == buf + 4 && got[1].len == 8 && got[1].seq == 13);
  count = 42;
  ANSWERS(MMQ_BUFFER_TOO_SMALL, mmq_dequeue_batch_into(queue, buf, 11, got, 8, &count, &len));
  CHECK(count == 42 && len == 12 && buf[0] == '0' && buf[12] == '-');
  OK(mmq_dequeue_batch_into(queue, buf, len, got, 8, &count, &len));
  CHECK(count == 1 && len == 12 && got[0].seq == 14);
  OK(mmq_dequeue_batch_into(queue, buf, SIZE_MAX, got, SIZE_MAX, &count, &len));
  CHECK(count == 1 && len == 16 && memcmp(buf, "0123456789abcdef", 16) == 0 && got[0].seq == 15);
  OK(mmq_consumer_dequeue_batch_into(consumer, buf, sizeof buf, got, 3, &count, &len));
  CHECK(count == 3 && len == 12 && got[2].seq == 13 && got[2].data == buf + 4);
  /* A consumer with deliveries takes the other way. */
  {
    mmq_delivery *delivery;
    OK(mmq_consumer_receive(consumer, &delivery));
    count = 42;
    ANSWERS(MMQ_BUFFER_TOO_SMALL, mmq_consumer_dequeue_batch_into(consumer, buf, 15, got, 3, &count, &len));
    CHECK(count == 42 && len == 16);
    mmq_delivery_free(delivery);
    OK(mmq_consumer_dequeue_batch_into(consumer, buf, 27, got, 3, &count, &len));
    CHECK(count == 1 && len == 12 && got[0].seq == 14);
    OK(mmq_consumer_dequeue_batch_into(consumer, buf, 28, got, 3, &count, &len));
    CHECK(count == 1 && len == 16 && got[0].seq == 15);
  }
  mmq_consumer_free(consumer);
  OK(mmq_consumer_remove(queue, "copies"));
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
  OK(mmq_consumer_seek(one, 16));
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
  batches_into_a_buffer(queue);
  gaps();
  names(queue);
  return 0;
}
