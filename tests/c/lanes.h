/* What the tests of lanes share. */
#include "check.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#define REFUSED(call) ANSWERS(MMQ_INVALID_ARGUMENT, call)
/* Never reached. */
#define LONG (120 * 1000)

typedef mmq_status (*receives)(mmq_lanes *, mmq_delivery **);

static inline const char *text(void) {
  static char buf[5200];
  mmq_last_error(buf, sizeof buf);
  return buf;
}

static inline mmq_queue *open_at(const char *name) {
  mmq_queue *queue = NULL;
  OK(mmq_open(path_of(name), NULL, &queue));
  return queue;
}

static inline mmq_consumer *link_of(mmq_queue *queue) {
  mmq_consumer *consumer = NULL;
  OK(mmq_consumer_open(queue, "link", &consumer));
  return consumer;
}

static inline mmq_lanes *lanes_of(mmq_consumer *consumer, const mmq_lane_options *options) {
  mmq_lanes *lanes = NULL;
  OK(mmq_lanes_open(consumer, options, &lanes));
  return lanes;
}

/* So many more messages. */
static inline void put(mmq_queue *queue, int count) {
  unsigned char bytes[300];
  mmq_stats stats;
  stats.struct_size = sizeof stats;
  OK(mmq_read_stats(queue, &stats));
  for (; count > 0; count--, stats.next_seq++) {
    fill(bytes, stats.next_seq, sizeof bytes);
    OK(mmq_enqueue(queue, bytes, sizeof bytes, NULL));
  }
}

static inline void is(mmq_delivery *delivery, uint64_t seq, bool is_backlog) {
  if (mmq_delivery_seq(delivery) != seq) {
    fprintf(stderr, "%llu came, not %llu\n", (unsigned long long)mmq_delivery_seq(delivery), (unsigned long long)seq);
  }
  CHECK(mmq_delivery_seq(delivery) == seq && mmq_delivery_is_backlog(delivery) == is_backlog);
  CHECK(mmq_delivery_len(delivery) == 300 && holds(mmq_delivery_data(delivery), seq, 300));
}

/* The next message is that one. */
static inline mmq_delivery *next(mmq_lanes *lanes, receives receive, uint64_t seq, bool is_backlog) {
  mmq_delivery *delivery = NULL;
  OK(receive(lanes, &delivery));
  is(delivery, seq, is_backlog);
  return delivery;
}

/* Of both lanes, in this order; negative numbers count from the backlog: -1 is its message 0. */
static inline void come(mmq_lanes *lanes, const int *numbers, int count) {
  int at;
  for (at = 0; at < count; at++) {
    bool is_backlog = numbers[at] < 0;
    uint64_t seq = (uint64_t)(is_backlog ? -1 - numbers[at] : numbers[at]);
    OK(mmq_delivery_ack(next(lanes, mmq_lanes_receive, seq, is_backlog)));
  }
}

#define COME(lanes, ...)                                        \
  do {                                                          \
    const int come_numbers[] = {__VA_ARGS__};                   \
    come(lanes, come_numbers, sizeof come_numbers / sizeof(int)); \
  } while (0)

static inline void nothing(mmq_lanes *lanes, receives receive) {
  mmq_delivery *none = NULL;
  ANSWERS(MMQ_EMPTY, receive(lanes, &none));
  CHECK(none == NULL);
}

/* The backlog is one stretch, or nothing where first is end. */
static inline void left(mmq_lanes *lanes, uint64_t first, uint64_t end) {
  mmq_stretch stretch = {77, 77};
  size_t count = 77;
  OK(mmq_lanes_backlog(lanes, &stretch, 1, &count));
  if (first == end) {
    CHECK(count == 0 && stretch.first == 77 && stretch.end == 77);
  } else {
    CHECK(count == 1 && stretch.first == first && stretch.end == end);
  }
}

/* The lane jumps, and leaves these numbers. */
static inline void jumps(mmq_lanes *lanes, uint64_t first, uint64_t end) {
  uint64_t from = 77, to = 77;
  OK(mmq_lanes_jump(lanes, &from, &to));
  CHECK(from == first && to == end);
}

static inline int64_t now_ms(void) {
  struct timespec now;
  CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}
