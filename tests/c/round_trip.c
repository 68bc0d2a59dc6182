/* Every message comes back byte for byte and in order: over arena sizes, message sizes, ways in and ways out, and reopening. */
#include "check.h"

static const size_t SIZES[] = {0,    1,     7,     8,     9,      100,    128,     4080,    4096,   4097,
                               8192, 65535, 65536, 65537, 131072, 262147, 1048576, 4194304, 5242880};
#define COUNT (sizeof SIZES / sizeof SIZES[0])
static unsigned char bytes[5242880];
static unsigned char copy[5242880 + 16];

static void put(mmq_queue *queue, unsigned long long number) {
  size_t len = SIZES[number % COUNT];
  uint64_t seq = 12345;
  fill(bytes, number, len);
  switch (number / COUNT % 3) {
    case 0:
      OK(mmq_enqueue(queue, len ? bytes : NULL, len, &seq));
      break;
    case 1: {
      mmq_slice parts[4];
      parts[0].data = bytes;
      parts[0].len = len / 3;
      parts[1].data = NULL;
      parts[1].len = 0;
      parts[2].data = bytes + len / 3;
      parts[2].len = len / 2;
      parts[3].data = bytes + len / 3 + len / 2;
      parts[3].len = len - len / 3 - len / 2;
      OK(mmq_enqueue_parts(queue, parts, 4, &seq));
      break;
    }
    default: {
      mmq_slice one;
      one.data = bytes;
      one.len = len;
      OK(mmq_enqueue_batch(queue, &one, 1, &seq));
    }
  }
  CHECK(seq == number);
}

static void take(mmq_queue *queue, unsigned long long number) {
  size_t len = SIZES[number % COUNT], got = 77;
  uint64_t seq = 0, waiting = 0;
  mmq_message *message = NULL;
  OK(mmq_len(queue, &waiting));
  switch (number % 4) {
    case 0:
      OK(mmq_dequeue(queue, &message));
      break;
    case 1:
      OK(mmq_peek(queue, &message));
      OK(mmq_skip(queue, &seq));
      CHECK(seq == number);
      break;
    case 2:
      OK(mmq_dequeue_timeout(queue, 0, &message));
      break;
    default:
      memset(copy, 0xee, len + 16);
      if (len > 0) {
        ANSWERS(MMQ_BUFFER_TOO_SMALL, mmq_dequeue_into(queue, copy, len - 1, &got, &seq));
        CHECK(got == len && seq == 0 && copy[0] == 0xee);
        ANSWERS(MMQ_BUFFER_TOO_SMALL, mmq_peek_into(queue, NULL, 0, &got, NULL));
        CHECK(got == len);
      }
      OK(mmq_peek_into(queue, copy, len, &got, &seq));
      CHECK(got == len && seq == number && holds(copy, number, len) && copy[len] == 0xee);
      memset(copy, 0xee, len + 16);
      seq = 0;
      OK(mmq_dequeue_into(queue, copy, sizeof copy, &got, &seq));
      CHECK(got == len && seq == number && holds(copy, number, len) && copy[len] == 0xee);
      message = NULL;
  }
  if (message) {
    CHECK(mmq_message_seq(message) == number && mmq_message_len(message) == len);
    CHECK(mmq_message_data(message) != NULL && holds(mmq_message_data(message), number, len));
    mmq_message_free(message);
  }
  {
    uint64_t now;
    OK(mmq_len(queue, &now));
    CHECK(now + 1 == waiting);
  }
}

static void round_trip(uint64_t arena, uint32_t arenas) {
  char name[64];
  mmq_queue *queue;
  mmq_options *options = mmq_options_new();
  unsigned long long in = 0, out = 0, half = COUNT * 3 / 2;
  bool empty = true;
  mmq_message *message = NULL;
  snprintf(name, sizeof name, "round-trip-%llu-%u", (unsigned long long)arena, (unsigned)arenas);
  OK(mmq_options_set_arena_size(options, arena));
  OK(mmq_options_set_max_mapped_arenas(options, arenas));
  OK(mmq_open(path_of(name), options, &queue));
  mmq_options_free(options);
  for (; in < half; in++) put(queue, in);
  for (; out < half / 2; out++) take(queue, out);
  OK(mmq_close(queue));
  OK(mmq_open(path_of(name), NULL, &queue));
  OK(mmq_is_empty(queue, &empty));
  CHECK(!empty);
  for (; in < COUNT * 3; in++) put(queue, in);
  for (; out < COUNT * 3; out++) take(queue, out);
  OK(mmq_is_empty(queue, &empty));
  CHECK(empty);
  ANSWERS(MMQ_EMPTY, mmq_dequeue(queue, &message));
  ANSWERS(MMQ_EMPTY, mmq_peek(queue, &message));
  CHECK(message == NULL);
  OK(mmq_close(queue));
}

int main(int argc, char **argv) {
  BEGIN(argc, argv);
  round_trip(4096, 3);
  round_trip(65536, 4);
  round_trip(131072, 0);
  round_trip(4194304, 3);
  round_trip(134217728, 3);
  return 0;
}
