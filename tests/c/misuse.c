/* Impossible lengths and numbers, structs of another size, texts at their limits, handles given back twice. (NULL and handles of
 * no use, in every place: see tests/c_api/misuse.rs.) */
#include "check.h"

#define REFUSED(call) ANSWERS(MMQ_INVALID_ARGUMENT, call)

int main(int argc, char **argv) {
  mmq_options *options = mmq_options_new();
  mmq_queue *queue = NULL;
  mmq_consumer *consumer = NULL;
  mmq_message *message = NULL;
  mmq_stats stats;
  mmq_slice slice = {NULL, 5};
  char buf[8], text[8] = "unset";
  size_t len = 42;
  uint64_t seq = 42;
  int round;
  BEGIN(argc, argv);

  CHECK(mmq_last_error(NULL, 0) == 0 && mmq_last_error(NULL, 100) == 0);
  REFUSED(mmq_options_set_arena_size(NULL, 4096));
  CHECK(mmq_last_error(NULL, 0) == strlen("options: NULL"));
  CHECK(mmq_last_error(text, 0) == 13 && strcmp(text, "unset") == 0);
  CHECK(mmq_last_error(text, 1) == 13 && strcmp(text, "") == 0);
  CHECK(mmq_last_error(text, 8) == 13 && strcmp(text, "options") == 0);
  REFUSED(mmq_options_set_on_full(options, (mmq_on_full)3, 0));
  REFUSED(mmq_options_set_on_full(options, (mmq_on_full)-1, 0));
  OK(mmq_open(path_of("misuse"), options, &queue));
  OK(mmq_consumer_open(queue, "name", &consumer));

  ANSWERS(MMQ_MESSAGE_TOO_LARGE, mmq_enqueue(queue, "x", SIZE_MAX, &seq));
  ANSWERS(MMQ_MESSAGE_TOO_LARGE, mmq_enqueue(queue, "x", (size_t)UINT32_MAX + 1, &seq));
  REFUSED(mmq_enqueue_batch(queue, &slice, 1, &seq));
  REFUSED(mmq_enqueue_batch(queue, &slice, SIZE_MAX, &seq));
  REFUSED(mmq_enqueue_parts(queue, &slice, 1, &seq));
  REFUSED(mmq_enqueue_parts(queue, &slice, SIZE_MAX / 2, &seq));
  {
    mmq_slice large[3];
    for (len = 0; len < 3; len++) {
      large[len].data = "x";
      large[len].len = UINT32_MAX;
    }
    ANSWERS(MMQ_MESSAGE_TOO_LARGE, mmq_enqueue_parts(queue, large, 3, &seq));
  }
  CHECK(seq == 42);
  OK(mmq_enqueue_batch(queue, NULL, 0, &seq));
  CHECK(seq == 0);
  OK(mmq_enqueue_parts(queue, NULL, 0, &seq));
  CHECK(seq == 0);
  OK(mmq_enqueue(queue, NULL, 0, &seq));
  CHECK(seq == 1);

  stats.struct_size = 0;
  REFUSED(mmq_read_stats(queue, &stats));
  stats.struct_size = SIZE_MAX;
  REFUSED(mmq_read_stats(queue, &stats));
  stats.struct_size = sizeof(size_t);
  REFUSED(mmq_read_stats(queue, &stats));

  /* A caller from before a field was added, and one from after. */
  memset(&stats, 0xee, sizeof stats);
  stats.struct_size = sizeof(size_t) + sizeof(uint64_t);
  OK(mmq_read_stats(queue, &stats));
  CHECK(stats.messages == 2 && stats.bytes == UINT64_C(0xeeeeeeeeeeeeeeee));
  {
    struct {
      mmq_stats stats;
      uint64_t more;
    } later;
    memset(&later, 0xee, sizeof later);
    later.stats.struct_size = sizeof later;
    OK(mmq_read_stats(queue, &later.stats));
    CHECK(later.stats.struct_size == sizeof(mmq_stats) && later.stats.next_seq == 2);
    CHECK(later.more == UINT64_C(0xeeeeeeeeeeeeeeee));
  }

  {
    mmq_consumer_stats of_one;
    of_one.struct_size = 0;
    REFUSED(mmq_consumer_read_stats(consumer, &of_one));
    of_one.struct_size = SIZE_MAX;
    REFUSED(mmq_consumer_read_stats(consumer, &of_one));
    memset(&of_one, 0xee, sizeof of_one);
    of_one.struct_size = offsetof(mmq_consumer_stats, bytes);
    OK(mmq_consumer_read_stats(consumer, &of_one));
    CHECK(of_one.messages == 2 && of_one.bytes == UINT64_C(0xeeeeeeeeeeeeeeee));
    CHECK(of_one.next_seq == 0 && of_one.struct_size == offsetof(mmq_consumer_stats, bytes));
  }

  /* Room that is never touched may be claimed. */
  OK(mmq_peek_into(queue, buf, SIZE_MAX, &len, NULL));
  CHECK(len == 0);
  OK(mmq_dequeue_into(queue, NULL, 0, &len, NULL));
  OK(mmq_skip(queue, NULL));

  /* Handles that are gone: known as long as not too many others are. */
  OK(mmq_consumer_dequeue(consumer, &message));
  for (round = 0; round < 3; round++) {
    mmq_message_free(message);
    CHECK(mmq_message_data(message) == NULL && mmq_message_seq(message) == UINT64_MAX);
    mmq_consumer_free(consumer);
    REFUSED(mmq_consumer_len(consumer, &seq));
    mmq_options_free(options);
    REFUSED(mmq_options_set_arena_size(options, 4096));
    mmq_message_free((void *)queue);
  }
  OK(mmq_close(queue));
  REFUSED(mmq_close(queue));
  REFUSED(mmq_flush(queue));
  return 0;
}
