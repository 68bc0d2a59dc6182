/* Work that may fail: what is not acknowledged comes again, also after closing; and the descriptor that says when to read. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <poll.h>

#define REFUSED(call) ANSWERS(MMQ_INVALID_ARGUMENT, call)

static int readable(int descriptor, int ms) {
  struct pollfd poll_for;
  poll_for.fd = descriptor;
  poll_for.events = POLLIN;
  return poll(&poll_for, 1, ms) == 1;
}

int main(int argc, char **argv) {
  mmq_queue *queue;
  mmq_consumer *workers, *many;
  mmq_delivery *batch[3];
  size_t taken;
  mmq_delivery *first, *second, *third, *none = NULL;
  mmq_consumer_stats figures;
  uint8_t id[16], same[16];
  uint64_t count;
  int ready = -1, own = -1;
  BEGIN(argc, argv);
  OK(mmq_open(path_of("deliveries"), NULL, &queue));
  OK(mmq_consumer_open(queue, "workers", &workers));
  OK(mmq_queue_id(queue, id));
  OK(mmq_consumer_ready_fd(workers, &ready));
  OK(mmq_ready_fd(queue, &own));
  CHECK(ready >= 0 && own >= 0 && !readable(ready, 0) && !readable(own, 0));
  OK(mmq_enqueue(queue, "a", 1, NULL));
  CHECK(readable(ready, 2000) && readable(own, 2000));
  OK(mmq_enqueue(queue, "bb", 2, NULL));
  OK(mmq_enqueue(queue, "ccc", 3, NULL));

  OK(mmq_consumer_receive(workers, &first));
  OK(mmq_consumer_receive_timeout(workers, 0, &second));
  CHECK(mmq_delivery_seq(first) == 0 && mmq_delivery_len(second) == 2 && memcmp(mmq_delivery_data(second), "bb", 2) == 0);
  OK(mmq_consumer_in_flight(workers, &count));
  CHECK(count == 2);
  OK(mmq_consumer_set_max_in_flight(workers, 2));
  ANSWERS(MMQ_EMPTY, mmq_consumer_receive(workers, &none));
  ANSWERS(MMQ_TIMED_OUT, mmq_consumer_receive_timeout(workers, 1, &none));
  OK(mmq_consumer_set_max_in_flight(workers, 0));
  OK(mmq_consumer_receive_timeout(workers, -1, &third));
  CHECK(mmq_delivery_seq(third) == 2 && mmq_delivery_attempts(third) == 1);
  OK(mmq_delivery_ack(second));
  REFUSED(mmq_delivery_ack(second));
  CHECK(mmq_delivery_data(second) == NULL);
  figures.struct_size = sizeof figures;
  OK(mmq_consumer_read_stats(workers, &figures));
  CHECK(figures.next_seq == 0 && figures.messages == 2 && figures.in_flight == 2 && figures.bytes > 6);
  OK(mmq_delivery_nack(first));
  OK(mmq_consumer_receive(workers, &first));
  CHECK(mmq_delivery_seq(first) == 0 && mmq_delivery_attempts(first) == 2);
  mmq_delivery_free(first);
  OK(mmq_consumer_open(queue, "many", &many));
  OK(mmq_consumer_receive_batch(many, batch, 2, &taken));
  CHECK(taken == 2 && mmq_delivery_seq(batch[1]) == 1);
  batch[2] = batch[0]; /* Twice: refused, and the others are acknowledged. */
  REFUSED(mmq_delivery_ack_batch(batch, 3));
  REFUSED(mmq_delivery_ack_batch(NULL, 1));
  OK(mmq_delivery_ack_batch(NULL, 0));
  REFUSED(mmq_consumer_receive_batch(many, NULL, 1, &taken));
  OK(mmq_consumer_receive_batch(many, batch, 3, &taken));
  CHECK(taken == 1 && mmq_delivery_seq(batch[0]) == 2);
  OK(mmq_delivery_ack_batch(batch, 1));
  ANSWERS(MMQ_EMPTY, mmq_consumer_receive_batch(many, batch, 3, &taken));
  mmq_consumer_free(many);
  OK(mmq_receive_batch(queue, batch, 3, &taken));
  CHECK(taken == 3);
  while (taken) mmq_delivery_free(batch[--taken]);
  mmq_consumer_free(workers);
  OK(mmq_close(queue));
  CHECK(memcmp(mmq_delivery_data(third), "ccc", 3) == 0);
  ANSWERS(MMQ_CLOSED, mmq_delivery_ack(third));

  OK(mmq_open(path_of("deliveries"), NULL, &queue));
  OK(mmq_queue_id(queue, same));
  CHECK(memcmp(id, same, sizeof id) == 0);
  OK(mmq_consumer_open(queue, "workers", &workers));
  OK(mmq_consumer_read_stats(workers, &figures));
  CHECK(figures.next_seq == 0 && figures.messages == 2 && figures.in_flight == 0);
  OK(mmq_consumer_receive(workers, &first));
  OK(mmq_consumer_receive(workers, &third));
  CHECK(mmq_delivery_seq(first) == 0 && mmq_delivery_seq(third) == 2);
  ANSWERS(MMQ_EMPTY, mmq_consumer_receive(workers, &none));
  OK(mmq_delivery_ack(third));
  OK(mmq_delivery_ack(first));
  OK(mmq_consumer_len(workers, &count));
  CHECK(count == 0);

  OK(mmq_receive(queue, &first));
  OK(mmq_set_max_in_flight(queue, 1));
  ANSWERS(MMQ_TIMED_OUT, mmq_receive_timeout(queue, 0, &none));
  OK(mmq_in_flight(queue, &count));
  CHECK(count == 1);
  OK(mmq_delivery_ack(first));
  OK(mmq_in_flight(queue, &count));
  CHECK(count == 0);
  mmq_consumer_free(workers);
  OK(mmq_close(queue));
  return 0;
}
