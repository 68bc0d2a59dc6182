/* A million calls leave no memory behind. */
#include "check.h"

#include <malloc.h>

#define CALLS 1000000
/* What the library's own thread may hold at one moment and not at another: a segment made ready, say. The smallest leak in any of
 * the calls comes to 320,000 bytes. */
#define OWN (128 * 1024)

static size_t in_use(void) {
#if defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
  return mallinfo2().uordblks;
#else
  return 0;
#endif
}

static void calls(mmq_queue *queue, long count) {
  char buf[128] = {0};
  size_t len;
  mmq_message *message;
  long call;
  for (call = 0; call < count; call += 10) {
    mmq_queue *none;
    uint64_t seq;
    OK(mmq_enqueue(queue, buf, 100, &seq));
    OK(mmq_enqueue(queue, buf, sizeof buf, NULL));
    OK(mmq_peek(queue, &message));
    mmq_message_free(message);
    OK(mmq_dequeue(queue, &message));
    mmq_message_free(message);
    OK(mmq_dequeue_into(queue, buf, sizeof buf, &len, NULL));
    ANSWERS(MMQ_EMPTY, mmq_dequeue(queue, &message));
    ANSWERS(MMQ_INVALID_ARGUMENT, mmq_open("", NULL, &none));
    OK(mmq_len(queue, &seq));
  }
}

/* Everything else that gives a handle, or a failure, or a list. */
static void handles(mmq_queue *queue, mmq_consumer *workers, long rounds) {
  long round;
  for (round = 0; round < rounds; round++) {
    mmq_options *options = mmq_options_new();
    mmq_consumer *consumer;
    mmq_delivery *delivery;
    mmq_message *batch[3];
    mmq_iter *iter;
    mmq_lanes *lanes;
    mmq_stats stats;
    char names[64];
    size_t len;
    OK(mmq_options_set_on_full(options, MMQ_WAIT, 5));
    mmq_options_free(options);
    OK(mmq_consumer_open(queue, "name", &consumer));
    OK(mmq_consumers(queue, names, sizeof names, &len));
    mmq_consumer_free(consumer);
    ANSWERS(MMQ_NOT_FOUND, mmq_consumer_remove(queue, "nobody"));
    OK(mmq_enqueue(queue, names, len, NULL));
    OK(mmq_enqueue(queue, names, len, NULL));
    OK(mmq_consumer_receive(workers, &delivery));
    mmq_delivery_free(delivery);
    OK(mmq_lanes_open(workers, NULL, &lanes));
    OK(mmq_lanes_jump(lanes, NULL, NULL));
    OK(mmq_lanes_receive(lanes, &delivery));
    OK(mmq_delivery_ack(delivery));
    OK(mmq_lanes_backlog(lanes, NULL, 0, &len));
    mmq_lanes_free(lanes);
    OK(mmq_consumer_receive(workers, &delivery));
    OK(mmq_delivery_ack(delivery));
    OK(mmq_iter_open(queue, &iter));
    OK(mmq_iter_next(iter, &batch[0]));
    mmq_message_free(batch[0]);
    mmq_iter_free(iter);
    OK(mmq_dequeue_batch(queue, batch, 3, &len));
    while (len > 0) mmq_message_free(batch[--len]);
    stats.struct_size = sizeof stats;
    OK(mmq_read_stats(queue, &stats));
  }
}

int main(int argc, char **argv) {
  mmq_queue *queue;
  mmq_consumer *workers;
  size_t before, after;
  BEGIN(argc, argv);
  OK(mmq_open(path_of("million"), NULL, &queue));
  calls(queue, CALLS / 10);
  before = in_use();
  calls(queue, CALLS);
  after = in_use();
  printf("%d calls: %zu bytes in use before, %zu after\n", CALLS, before, after);
  CHECK(after <= before + OWN);

  /* The last handles of each kind that were freed are kept, and no more. */
  OK(mmq_consumer_open(queue, "workers", &workers));
  handles(queue, workers, 1000);
  before = in_use();
  handles(queue, workers, 10000);
  after = in_use();
  printf("10000 rounds: %zu bytes in use before, %zu after\n", before, after);
  CHECK(after <= before + OWN);
  mmq_consumer_free(workers);
  OK(mmq_close(queue));
  return 0;
}
