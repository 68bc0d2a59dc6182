/* Messages that were handed out in vain: leases, delays, most attempts, and where those go that never work. */
#define _GNU_SOURCE
#include "check.h"

#include <time.h>
#include <unistd.h>

#define REFUSED(call) ANSWERS(MMQ_INVALID_ARGUMENT, call)
/* Never reached. */
#define LONG (120 * 1000)

static const char *text(void) {
  static char buf[5200];
  mmq_last_error(buf, sizeof buf);
  return buf;
}

static mmq_queue *open_at(const char *name) {
  mmq_queue *queue = NULL;
  OK(mmq_open(path_of(name), NULL, &queue));
  return queue;
}

/* One with messages 0, 1, and so on. */
static mmq_queue *filled(const char *name, int count) {
  mmq_queue *queue = open_at(name);
  char number;
  for (number = '0'; number < '0' + count; number++) OK(mmq_enqueue(queue, &number, 1, NULL));
  return queue;
}

/* The next message, which comes at once or later, and how often it was handed out. */
static mmq_delivery *next(mmq_consumer *consumer, uint64_t seq, uint32_t attempts) {
  mmq_delivery *delivery = NULL;
  OK(mmq_consumer_receive_timeout(consumer, LONG, &delivery));
  CHECK(mmq_delivery_seq(delivery) == seq && mmq_delivery_attempts(delivery) == attempts);
  CHECK(mmq_delivery_len(delivery) == 1 && mmq_delivery_data(delivery)[0] == '0' + seq);
  return delivery;
}

static int64_t now_ms(void) {
  struct timespec now;
  CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void until_empty(mmq_queue *queue) {
  uint64_t len = 1;
  int tries;
  for (tries = 0; len > 0 && tries < 60 * 1000; tries++) {
    usleep(1000);
    OK(mmq_len(queue, &len));
  }
  CHECK(len == 0);
}

static void leases(void) {
  mmq_queue *queue = filled("leases", 2);
  mmq_consumer *workers;
  mmq_delivery *slow, *other, *again;
  OK(mmq_consumer_open(queue, "workers", &workers));
  OK(mmq_consumer_set_redelivery(workers, LONG, 0, 0, 0, NULL));
  other = next(workers, 0, 1);
  OK(mmq_consumer_set_redelivery(workers, 20, 0, 0, 0, NULL));
  slow = next(workers, 1, 1);
  OK(mmq_consumer_set_redelivery(workers, LONG, 0, 0, 0, NULL));
  again = next(workers, 1, 2);
  ANSWERS(MMQ_EXPIRED, mmq_delivery_extend(slow, LONG));
  CHECK(strstr(text(), "lease"));
  ANSWERS(MMQ_EXPIRED, mmq_delivery_ack(slow));
  REFUSED(mmq_delivery_ack(slow));
  /* An end that was moved counts, nearer and further. */
  OK(mmq_delivery_extend(other, 20));
  OK(mmq_delivery_ack(again));
  again = next(workers, 0, 2);
  ANSWERS(MMQ_EXPIRED, mmq_delivery_reject(other));
  OK(mmq_delivery_nack(again));
  OK(mmq_consumer_set_redelivery(workers, 500, 0, 0, 0, NULL));
  again = next(workers, 0, 3);
  OK(mmq_delivery_extend(again, INT64_MAX));
  usleep(600 * 1000);
  ANSWERS(MMQ_EMPTY, mmq_consumer_receive(workers, &other));
  OK(mmq_delivery_ack(again));
  mmq_consumer_free(workers);
  OK(mmq_close(queue));
}

static void delays(void) {
  mmq_queue *queue = filled("delays", 3);
  mmq_consumer *workers;
  mmq_delivery *delivery, *none = NULL;
  int64_t began;
  OK(mmq_consumer_open(queue, "workers", &workers));
  began = now_ms();
  OK(mmq_delivery_nack_after(next(workers, 0, 1), 1000));
  delivery = next(workers, 1, 1);
  OK(mmq_delivery_ack(next(workers, 2, 1)));
  ANSWERS(MMQ_EMPTY, mmq_consumer_receive(workers, &none));
  OK(mmq_delivery_nack_after(next(workers, 0, 2), 0));
  CHECK(now_ms() - began >= 1000);
  OK(mmq_delivery_nack_after(next(workers, 0, 3), -1));
  OK(mmq_delivery_ack(next(workers, 0, 4)));
  /* By the rules: 500 ms each time. */
  OK(mmq_consumer_set_redelivery(workers, 0, 500, 0, 0, NULL));
  began = now_ms();
  OK(mmq_delivery_nack(delivery));
  ANSWERS(MMQ_EMPTY, mmq_consumer_receive(workers, &none));
  OK(mmq_delivery_nack(next(workers, 1, 2)));
  CHECK(now_ms() - began >= 500);
  OK(mmq_delivery_ack(next(workers, 1, 3)));
  CHECK(now_ms() - began >= 1000);
  mmq_consumer_free(workers);
  OK(mmq_close(queue));
}

static void is_told(mmq_consumer *consumer, uint64_t seq) {
  mmq_delivery *none = NULL;
  mmq_gap gap;
  ANSWERS(MMQ_GAP, mmq_consumer_receive(consumer, &none));
  CHECK(strstr(text(), "rejected"));
  OK(mmq_consumer_last_gap(consumer, &gap));
  CHECK(none == NULL && gap.first == seq && gap.last == seq && gap.cause == MMQ_GAP_REJECTED);
}

static void given_up(void) {
  mmq_queue *queue = filled("given-up", 4);
  mmq_consumer *workers;
  mmq_delivery *delivery;
  mmq_stats stats;
  OK(mmq_consumer_open(queue, "workers", &workers));
  delivery = next(workers, 0, 1);
  OK(mmq_delivery_reject(delivery));
  REFUSED(mmq_delivery_reject(delivery));
  is_told(workers, 0);
  OK(mmq_consumer_set_redelivery(workers, 0, 0, 0, 2, NULL));
  OK(mmq_delivery_nack(next(workers, 1, 1)));
  OK(mmq_delivery_nack(next(workers, 1, 2)));
  stats.struct_size = sizeof stats;
  OK(mmq_read_stats(queue, &stats));
  CHECK(stats.rejected == 2 && stats.lost_rejected == 1 && stats.gaps == 1);
  is_told(workers, 1);
  OK(mmq_read_stats(queue, &stats));
  CHECK(stats.rejected == 2 && stats.lost_rejected == 2 && stats.lost_messages == 2);
  /* A program that was compiled before there were these figures. */
  stats.struct_size = offsetof(mmq_stats, rejected);
  stats.rejected = stats.lost_rejected = 77;
  OK(mmq_read_stats(queue, &stats));
  CHECK(stats.rejected == 77 && stats.lost_rejected == 77 && stats.struct_size == offsetof(mmq_stats, rejected));
  OK(mmq_delivery_ack(next(workers, 2, 1)));
  delivery = next(workers, 3, 1);
  OK(mmq_close(queue));
  ANSWERS(MMQ_CLOSED, mmq_delivery_extend(delivery, 1));
  ANSWERS(MMQ_CLOSED, mmq_delivery_reject(delivery));
  REFUSED(mmq_delivery_reject(delivery));
  ANSWERS(MMQ_CLOSED, mmq_consumer_set_redelivery(workers, 1, 1, 1, 1, NULL));
  mmq_consumer_free(workers);
}

/* The letter says that it is the message `seq` of the queue, handed out so often. */
static void comes_from(mmq_origin origin, mmq_queue *queue, uint64_t seq, uint32_t attempts) {
  uint8_t id[16];
  OK(mmq_queue_id(queue, id));
  CHECK(memcmp(origin.queue_id, id, sizeof id) == 0 && origin.seq == seq && origin.attempts == attempts);
}

static void letters(void) {
  mmq_queue *queue = filled("jobs", 2), *dead = open_at("dead");
  mmq_delivery *delivery;
  mmq_message *letter;
  mmq_origin origin;
  mmq_stats stats;
  uint64_t durable = 0;
  int attempt;
  origin.struct_size = sizeof origin;
  OK(mmq_set_redelivery(queue, 0, 0, 0, 3, dead));
  for (attempt = 1; attempt <= 3; attempt++) {
    OK(mmq_receive(queue, &delivery));
    CHECK(mmq_delivery_seq(delivery) == 0 && mmq_delivery_attempts(delivery) == (uint32_t)attempt);
    OK(mmq_delivery_nack(delivery));
  }
  OK(mmq_dequeue_timeout(dead, LONG, &letter));
  CHECK(mmq_message_len(letter) == 1 && mmq_message_data(letter)[0] == '0');
  OK(mmq_message_origin(letter, &origin));
  comes_from(origin, queue, 0, 3);
  mmq_message_free(letter);
  OK(mmq_receive(queue, &delivery));
  CHECK(mmq_delivery_seq(delivery) == 1);
  OK(mmq_delivery_reject(delivery));
  OK(mmq_receive_timeout(dead, LONG, &delivery));
  CHECK(mmq_delivery_len(delivery) == 1 && mmq_delivery_data(delivery)[0] == '1');
  OK(mmq_delivery_origin(delivery, &origin));
  comes_from(origin, queue, 1, 1);
  OK(mmq_delivery_ack(delivery));
  until_empty(queue);
  OK(mmq_durable_seq(dead, &durable));
  CHECK(durable == 2);
  stats.struct_size = sizeof stats;
  OK(mmq_read_stats(queue, &stats));
  CHECK(stats.rejected == 2 && stats.lost_rejected == 0 && stats.gaps == 0);
  OK(mmq_close(queue));
  OK(mmq_close(dead));
}

/* The queue for the dead letters is closed first, as it should not be: they stay. */
static void closed_first(void) {
  mmq_queue *queue = filled("stay", 2), *dead = open_at("closed-first");
  mmq_delivery *delivery, *none = NULL;
  mmq_message *letter;
  mmq_origin origin;
  uint64_t len = 0;
  OK(mmq_set_redelivery(queue, 0, 10, 10, 1, dead));
  OK(mmq_close(dead));
  OK(mmq_receive(queue, &delivery));
  OK(mmq_delivery_nack(delivery));
  /* It is tried several times. */
  usleep(100 * 1000);
  OK(mmq_receive(queue, &delivery));
  CHECK(mmq_delivery_seq(delivery) == 1);
  OK(mmq_delivery_ack(delivery));
  ANSWERS(MMQ_EMPTY, mmq_receive(queue, &none));
  OK(mmq_len(queue, &len));
  CHECK(len == 1);
  REFUSED(mmq_set_redelivery(queue, 0, 0, 0, 1, dead));
  OK(mmq_enqueue(queue, "2", 1, NULL));
  OK(mmq_flush(queue));
  OK(mmq_close(queue));

  queue = open_at("stay");
  dead = open_at("closed-first");
  OK(mmq_is_empty(dead, &(bool){true}));
  OK(mmq_set_redelivery(queue, 0, 10, 10, 1, dead));
  OK(mmq_receive(queue, &delivery));
  CHECK(mmq_delivery_seq(delivery) == 2);
  OK(mmq_delivery_ack(delivery));
  OK(mmq_dequeue_timeout(dead, LONG, &letter));
  origin.struct_size = sizeof origin;
  OK(mmq_message_origin(letter, &origin));
  comes_from(origin, queue, 0, 1);
  mmq_message_free(letter);
  until_empty(queue);
  OK(mmq_close(dead));
  OK(mmq_close(queue));
}

static void refused(void) {
  mmq_queue *queue = filled("refused", 1), *other = open_at("other"), *gone = open_at("gone");
  mmq_consumer *workers, *removed;
  mmq_delivery *delivery;
  OK(mmq_close(gone));
  OK(mmq_consumer_open(queue, "workers", &workers));
  OK(mmq_consumer_open(queue, "removed", &removed));
  REFUSED(mmq_set_redelivery(queue, 0, 0, 0, 1, queue));
  CHECK(strstr(text(), "its own") && strstr(text(), "dead letters") && strstr(text(), path_of("refused")));
  REFUSED(mmq_consumer_set_redelivery(workers, 0, 0, 0, 1, queue));
  REFUSED(mmq_set_redelivery(queue, 0, 2, 1, 0, NULL));
  CHECK(strstr(text(), "first delay") && strstr(text(), path_of("refused")));
  REFUSED(mmq_consumer_set_redelivery(workers, 0, INT64_MAX, 1, 0, NULL));
  REFUSED(mmq_set_redelivery(queue, 0, 0, 0, 1, gone));
  REFUSED(mmq_set_redelivery(gone, 0, 0, 0, 1, other));
  REFUSED(mmq_set_redelivery(NULL, 0, 0, 0, 1, other));
  REFUSED(mmq_consumer_set_redelivery(NULL, 0, 0, 0, 1, other));
  OK(mmq_set_redelivery(queue, 0, 0, 0, 1, other));
  REFUSED(mmq_set_redelivery(other, 0, 0, 0, 1, queue));
  CHECK(strstr(text(), "circle"));
  OK(mmq_set_redelivery(queue, 0, 0, 0, 0, NULL));
  OK(mmq_set_redelivery(other, INT64_MIN, -1, -1, UINT32_MAX, queue));
  OK(mmq_set_redelivery(other, INT64_MAX, INT64_MAX, INT64_MAX, UINT32_MAX, NULL));
  OK(mmq_consumer_remove(queue, "removed"));
  ANSWERS(MMQ_NOT_FOUND, mmq_consumer_set_redelivery(removed, 0, 0, 0, 1, other));
  mmq_consumer_free(removed);
  REFUSED(mmq_consumer_set_redelivery(removed, 0, 0, 0, 1, other));

  OK(mmq_consumer_set_redelivery(workers, INT64_MAX, 0, INT64_MAX, 0, NULL));
  delivery = next(workers, 0, 1);
  REFUSED(mmq_delivery_extend(delivery, 0));
  CHECK(strstr(text(), "ms"));
  REFUSED(mmq_delivery_extend(delivery, INT64_MIN));
  REFUSED(mmq_delivery_extend(NULL, 1));
  REFUSED(mmq_delivery_nack_after(NULL, 1));
  REFUSED(mmq_delivery_reject(NULL));
  OK(mmq_delivery_nack_after(delivery, INT64_MAX));
  REFUSED(mmq_delivery_nack_after(delivery, 1));
  REFUSED(mmq_delivery_extend(delivery, 1));
  REFUSED(mmq_delivery_reject(delivery));
  mmq_consumer_free(workers);
  OK(mmq_close(queue));
  OK(mmq_close(other));
}

int main(int argc, char **argv) {
  BEGIN(argc, argv);
  leases();
  delays();
  given_up();
  letters();
  closed_first();
  refused();
  return 0;
}
