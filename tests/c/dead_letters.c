/* Dead letters say where they come from, and messages that they are none. The queue is tests/fixtures/letters. */
#include "check.h"

static mmq_origin empty(void) {
  mmq_origin origin;
  memset(&origin, 0xff, sizeof origin);
  origin.struct_size = sizeof origin;
  return origin;
}

static void is(const mmq_origin *origin, uint64_t seq, uint32_t attempts) {
  CHECK(origin->struct_size == sizeof *origin && memcmp(origin->queue_id, "the other queue.", 16) == 0);
  CHECK(origin->seq == seq && origin->attempts == attempts && origin->reserved == 0);
}

/* What the queue holds: lengths, and origins (none where there are no attempts). */
static const struct {
  size_t len;
  uint64_t seq;
  uint32_t attempts;
} held[] = {{23, 0, 0}, {13, 1000000007, 5}, {10, 0, 0}, {10, 0, 0}, {0, 0, 1}, {9000, UINT32_MAX, UINT32_MAX}, {4, 0, 0}};

int main(int argc, char **argv) {
  BEGIN(argc, argv);
  mmq_queue *queue = NULL;
  mmq_consumer *workers = NULL, *readers = NULL;
  OK(mmq_open(path_of("letters"), NULL, &queue));
  OK(mmq_consumer_open(queue, "workers", &workers));
  OK(mmq_consumer_open(queue, "readers", &readers));
  for (size_t at = 0; at < sizeof held / sizeof *held; at++) {
    mmq_message *peeked = NULL, *message = NULL;
    mmq_delivery *delivery = NULL;
    static unsigned char buf[10000];
    size_t len = 0;
    uint64_t seq = 0;
    OK(mmq_peek(queue, &peeked));
    OK(mmq_dequeue(queue, &message));
    OK(mmq_consumer_dequeue_into(readers, buf, sizeof buf, &len, &seq));
    OK(mmq_consumer_receive(workers, &delivery));
    CHECK(mmq_message_len(message) == held[at].len && mmq_message_len(peeked) == held[at].len);
    CHECK(mmq_delivery_len(delivery) == held[at].len && len == held[at].len && seq == at);
    CHECK(memcmp(mmq_message_data(message), buf, len) == 0 && memcmp(mmq_delivery_data(delivery), buf, len) == 0);
    if (at == 1) CHECK(memcmp(buf, "a dead letter", len) == 0);
    mmq_origin origin = empty(), untouched = empty();
    if (held[at].attempts == 0) {
      ANSWERS(MMQ_NOT_FOUND, mmq_message_origin(message, &origin));
      ANSWERS(MMQ_NOT_FOUND, mmq_delivery_origin(delivery, &origin));
      CHECK(memcmp(&origin, &untouched, sizeof origin) == 0);
      char text[100];
      mmq_last_error(text, sizeof text);
      CHECK(strcmp(text, "the message is no dead letter, so it has no origin") == 0);
    } else {
      OK(mmq_message_origin(message, &origin));
      is(&origin, held[at].seq, held[at].attempts);
      origin = empty();
      OK(mmq_message_origin(peeked, &origin));
      is(&origin, held[at].seq, held[at].attempts);
      origin = empty();
      OK(mmq_delivery_origin(delivery, &origin));
      is(&origin, held[at].seq, held[at].attempts);
      /* A caller that was compiled with a shorter struct, and one that did not set its size. */
      origin = empty();
      origin.struct_size = offsetof(mmq_origin, seq);
      OK(mmq_message_origin(message, &origin));
      CHECK(origin.struct_size == offsetof(mmq_origin, seq) && origin.seq == UINT64_MAX);
      origin.struct_size = 0;
      ANSWERS(MMQ_INVALID_ARGUMENT, mmq_message_origin(message, &origin));
      ANSWERS(MMQ_INVALID_ARGUMENT, mmq_delivery_origin(delivery, NULL));
    }
    mmq_message_free(peeked);
    mmq_message_free(message);
    OK(mmq_delivery_ack(delivery));
  }
  mmq_consumer_free(workers);
  mmq_consumer_free(readers);
  OK(mmq_close(queue));
  puts("read dead letters");
  return 0;
}
