/* Fresh messages first, and the backlog beside them. */
#define _GNU_SOURCE
#include "lanes.h"

/* The link is down while messages come: the newest go first, and the others beside them. */
static void outage(void) {
  mmq_queue *queue = open_at("outage");
  mmq_consumer *consumer = link_of(queue);
  mmq_lane_options options = {MMQ_FRESH_MESSAGES, 2, 1, 1, 0, MMQ_OLDEST_FIRST};
  mmq_lanes *lanes = lanes_of(consumer, &options);
  mmq_delivery *one, *two;
  uint64_t len = 0;
  put(queue, 2);
  COME(lanes, 0, 1);
  put(queue, 10);
  left(lanes, 0, 0);
  COME(lanes, -1 - 2, -1 - 3);
  left(lanes, 4, 12);
  put(queue, 2);
  COME(lanes, 12, -1 - 4, 13, -1 - 5, -1 - 6);
  nothing(lanes, mmq_lanes_receive_fresh);
  /* What the backlog handed out stays its own. */
  one = next(lanes, mmq_lanes_receive_backlog, 7, true);
  left(lanes, 8, 12);
  put(queue, 1);
  two = next(lanes, mmq_lanes_receive, 14, false);
  OK(mmq_delivery_nack(one));
  mmq_delivery_free(two);
  COME(lanes, -1 - 7, 14, -1 - 8, -1 - 9, -1 - 10, -1 - 11);
  nothing(lanes, mmq_lanes_receive);
  nothing(lanes, mmq_lanes_receive_backlog);
  left(lanes, 0, 0);
  OK(mmq_consumer_len(consumer, &len));
  CHECK(len == 0);
  mmq_lanes_free(lanes);
  mmq_consumer_free(consumer);
  OK(mmq_close(queue));
}

static void too_old(void) {
  mmq_queue *queue = open_at("old");
  mmq_consumer *consumer = link_of(queue);
  mmq_lane_options options = {MMQ_FRESH_AGE, 40, 0, 0, 0, MMQ_OLDEST_FIRST};
  mmq_lanes *lanes = lanes_of(consumer, &options), *others;
  mmq_delivery *delivery;
  put(queue, 3);
  usleep(300 * 1000);
  nothing(lanes, mmq_lanes_receive_fresh);
  left(lanes, 0, 3);
  /* Through another handle: from now on nothing grows old. */
  others = lanes_of(consumer, NULL);
  put(queue, 1);
  usleep(100 * 1000);
  mmq_consumer_free(consumer);
  mmq_lanes_free(others);
  delivery = next(lanes, mmq_lanes_receive_fresh, 3, false);
  OK(mmq_delivery_ack(delivery));
  REFUSED(mmq_delivery_ack(delivery));
  CHECK(!mmq_delivery_is_backlog(delivery));
  left(lanes, 0, 3);
  COME(lanes, -1 - 0, -1 - 1, -1 - 2);
  mmq_lanes_free(lanes);
  OK(mmq_close(queue));
}

static void jumps_and_orders(void) {
  mmq_queue *queue = open_at("jumps");
  mmq_consumer *consumer = link_of(queue);
  mmq_lane_options options;
  mmq_lanes *lanes;
  mmq_delivery *early;
  mmq_stretch stretches[3];
  size_t count = 0;
  memset(&options, 0, sizeof options);
  options.order = MMQ_NEWEST_STRETCH_FIRST;
  lanes = lanes_of(consumer, &options);
  jumps(lanes, 0, 0);
  put(queue, 3);
  jumps(lanes, 0, 3);
  put(queue, 1);
  early = next(lanes, mmq_lanes_receive_fresh, 3, false);
  put(queue, 2);
  jumps(lanes, 4, 6);
  put(queue, 2);
  COME(lanes, 6);
  OK(mmq_lanes_jump(lanes, NULL, NULL));
  jumps(lanes, 8, 8);
  memset(stretches, 0xee, sizeof stretches);
  OK(mmq_lanes_backlog(lanes, NULL, 0, &count));
  CHECK(count == 3);
  count = 0;
  OK(mmq_lanes_backlog(lanes, stretches, 2, &count));
  CHECK(count == 3 && stretches[0].first == 0 && stretches[0].end == 3);
  CHECK(stretches[1].first == 4 && stretches[1].end == 6 && stretches[2].first == UINT64_C(0xeeeeeeeeeeeeeeee));
  OK(mmq_lanes_backlog(lanes, stretches, 3, &count));
  CHECK(count == 3 && stretches[2].first == 7 && stretches[2].end == 8);

  nothing(lanes, mmq_lanes_receive_fresh);
  OK(mmq_delivery_ack(next(lanes, mmq_lanes_receive_backlog, 7, true)));
  OK(mmq_delivery_ack(next(lanes, mmq_lanes_receive_backlog, 4, true)));
  /* Handed out before the jumps: the backlog's now. */
  CHECK(!mmq_delivery_is_backlog(early));
  OK(mmq_delivery_nack(early));
  nothing(lanes, mmq_lanes_receive_fresh);
  early = next(lanes, mmq_lanes_receive_backlog, 3, true);
  CHECK(mmq_delivery_attempts(early) == 2);
  OK(mmq_delivery_ack(early));
  COME(lanes, -1 - 5, -1 - 0, -1 - 1);
  /* The consumer's own reads take the oldest message of both lanes. */
  put(queue, 1);
  OK(mmq_consumer_receive(consumer, &early));
  is(early, 2, true);
  OK(mmq_delivery_ack(early));
  OK(mmq_consumer_receive(consumer, &early));
  is(early, 8, false);
  OK(mmq_delivery_ack(early));
  mmq_lanes_free(lanes);
  mmq_consumer_free(consumer);
  OK(mmq_close(queue));
}

static void shares(void) {
  mmq_queue *queue = open_at("shares");
  mmq_consumer *consumer = link_of(queue);
  mmq_lane_options options;
  mmq_lanes *lanes;
  memset(&options, 0, sizeof options);
  lanes = lanes_of(consumer, &options);
  put(queue, 4);
  jumps(lanes, 0, 4);
  put(queue, 6);
  COME(lanes, 4, 5, 6, 7, -1 - 0, 8, 9, -1 - 1, -1 - 2, -1 - 3);
  options.share_fresh = 2;
  options.share_backlog = 1;
  mmq_lanes_free(lanes);
  lanes = lanes_of(consumer, &options);
  put(queue, 4);
  jumps(lanes, 10, 14);
  put(queue, 4);
  COME(lanes, 14, 15, -1 - 10, 16, 17, -1 - 11, -1 - 12, -1 - 13);
  options.share_fresh = 0;
  mmq_lanes_free(lanes);
  lanes = lanes_of(consumer, &options);
  put(queue, 2);
  jumps(lanes, 18, 20);
  put(queue, 2);
  COME(lanes, -1 - 18, -1 - 19, 20, 21);
  options.share_fresh = UINT32_MAX;
  options.share_backlog = 0;
  mmq_lanes_free(lanes);
  lanes = lanes_of(consumer, &options);
  put(queue, 2);
  jumps(lanes, 22, 24);
  put(queue, 2);
  COME(lanes, 24, 25, -1 - 22, -1 - 23);
  mmq_lanes_free(lanes);
  mmq_consumer_free(consumer);
  OK(mmq_close(queue));
}

/* What lies between acknowledged messages is the backlog of the next opening. */
static void reopened(void) {
  mmq_queue *queue = open_at("reopened");
  mmq_consumer *consumer = link_of(queue);
  mmq_lane_options options = {MMQ_FRESH_MESSAGES, 4, 1, 1, 0, MMQ_OLDEST_FIRST};
  mmq_lanes *lanes = lanes_of(consumer, &options);
  mmq_delivery *late, *fresh;
  mmq_stretch stretches[2];
  size_t count = 0;
  put(queue, 10);
  COME(lanes, -1 - 0, -1 - 1);
  put(queue, 3);
  COME(lanes, 10, -1 - 2, 11);
  late = next(lanes, mmq_lanes_receive_backlog, 3, true);
  OK(mmq_delivery_ack(next(lanes, mmq_lanes_receive_backlog, 4, true)));
  fresh = next(lanes, mmq_lanes_receive_fresh, 12, false);
  OK(mmq_close(queue));
  ANSWERS(MMQ_CLOSED, mmq_delivery_ack(late));
  CHECK(mmq_delivery_is_backlog(fresh) == false);
  mmq_delivery_free(fresh);
  mmq_lanes_free(lanes);
  mmq_consumer_free(consumer);

  queue = open_at("reopened");
  consumer = link_of(queue);
  lanes = lanes_of(consumer, &options);
  OK(mmq_lanes_backlog(lanes, stretches, 2, &count));
  CHECK(count == 2 && stretches[0].first == 3 && stretches[0].end == 4);
  CHECK(stretches[1].first == 5 && stretches[1].end == 10);
  COME(lanes, 12, -1 - 3, -1 - 5, -1 - 6, -1 - 7, -1 - 8, -1 - 9);
  nothing(lanes, mmq_lanes_receive);
  mmq_lanes_free(lanes);
  mmq_consumer_free(consumer);
  OK(mmq_close(queue));
}

/* One message of the backlog in a second; the fresh lane goes on meanwhile. */
static void rate(void) {
  mmq_queue *queue = open_at("rate");
  mmq_consumer *consumer = link_of(queue);
  mmq_lane_options options = {MMQ_FRESH_MANUAL, -5, 0, 1, 1, MMQ_OLDEST_FIRST};
  mmq_lanes *lanes = lanes_of(consumer, &options);
  mmq_delivery *delivery = NULL;
  mmq_status status;
  int64_t began;
  put(queue, 3);
  jumps(lanes, 0, 3);
  put(queue, 1);
  began = now_ms();
  COME(lanes, -1 - 0);
  status = mmq_lanes_receive_backlog(lanes, &delivery);
  /* Unless this program was kept waiting. */
  CHECK(status == MMQ_EMPTY || now_ms() - began >= 1000);
  mmq_delivery_free(delivery);
  OK(mmq_lanes_receive_fresh_timeout(lanes, 0, &delivery));
  is(delivery, 3, false);
  OK(mmq_delivery_ack(delivery));
  OK(mmq_lanes_receive_timeout(lanes, -1, &delivery));
  CHECK(now_ms() - began >= 1000);
  is(delivery, 1, true);
  OK(mmq_delivery_ack(delivery));
  OK(mmq_lanes_receive_backlog_timeout(lanes, LONG, &delivery));
  CHECK(now_ms() - began >= 2000);
  is(delivery, 2, true);
  OK(mmq_delivery_ack(delivery));
  delivery = NULL;
  ANSWERS(MMQ_TIMED_OUT, mmq_lanes_receive_timeout(lanes, 0, &delivery));
  ANSWERS(MMQ_TIMED_OUT, mmq_lanes_receive_fresh_timeout(lanes, 1, &delivery));
  ANSWERS(MMQ_TIMED_OUT, mmq_lanes_receive_backlog_timeout(lanes, 1, &delivery));
  CHECK(delivery == NULL);
  mmq_lanes_free(lanes);
  mmq_consumer_free(consumer);
  OK(mmq_close(queue));
}

static void *waits(void *waiting) {
  mmq_lanes *lanes = (mmq_lanes *)waiting;
  mmq_delivery *delivery = NULL;
  OK(mmq_lanes_receive_fresh_timeout(lanes, -1, &delivery));
  is(delivery, 2, false);
  OK(mmq_delivery_ack(delivery));
  delivery = NULL;
  ANSWERS(MMQ_INTERRUPTED, mmq_lanes_receive_fresh_timeout(lanes, LONG, &delivery));
  CHECK(delivery == NULL);
  return waiting;
}

static void *waits_for_the_backlog(void *waiting) {
  mmq_lanes *lanes = (mmq_lanes *)waiting;
  mmq_delivery *delivery = NULL;
  OK(mmq_lanes_receive_backlog_timeout(lanes, -1, &delivery));
  is(delivery, 3, true);
  OK(mmq_delivery_ack(delivery));
  delivery = NULL;
  ANSWERS(MMQ_CLOSED, mmq_lanes_receive_timeout(lanes, -1, &delivery));
  CHECK(delivery == NULL);
  return waiting;
}

static void waited_for(void) {
  mmq_queue *queue = open_at("waited");
  mmq_consumer *consumer = link_of(queue);
  mmq_lanes *lanes = lanes_of(consumer, NULL);
  pthread_t waiter;
  uint64_t len = 1;
  put(queue, 2);
  jumps(lanes, 0, 2);
  CHECK(pthread_create(&waiter, NULL, waits, lanes) == 0);
  usleep(10 * 1000);
  put(queue, 1);
  do {
    usleep(1000);
    OK(mmq_consumer_len(consumer, &len));
  } while (len != 2);
  do {
    OK(mmq_interrupt(queue));
    usleep(1000);
  } while (pthread_tryjoin_np(waiter, NULL));
  COME(lanes, -1 - 0, -1 - 1);

  put(queue, 1);
  CHECK(pthread_create(&waiter, NULL, waits_for_the_backlog, lanes) == 0);
  usleep(10 * 1000);
  jumps(lanes, 3, 4);
  do {
    usleep(1000);
    OK(mmq_consumer_len(consumer, &len));
  } while (len != 0);
  OK(mmq_close(queue));
  CHECK(pthread_join(waiter, NULL) == 0);
  mmq_lanes_free(lanes);
  mmq_consumer_free(consumer);
}

/* A gap is reported through the handle that meets it. */
static void gaps(void) {
  mmq_queue *queue = open_at("gaps");
  mmq_consumer *consumer = link_of(queue);
  mmq_lanes *lanes = lanes_of(consumer, NULL), *others = lanes_of(consumer, NULL);
  mmq_delivery *none = NULL;
  mmq_gap gap = {7, 7, MMQ_GAP_DAMAGED};
  put(queue, 3);
  OK(mmq_delivery_reject(next(lanes, mmq_lanes_receive_fresh, 0, false)));
  ANSWERS(MMQ_EMPTY, mmq_lanes_last_gap(lanes, &gap));
  CHECK(gap.first == 7);
  ANSWERS(MMQ_GAP, mmq_lanes_receive(lanes, &none));
  CHECK(strstr(text(), "rejected") && none == NULL);
  OK(mmq_lanes_last_gap(lanes, &gap));
  CHECK(gap.first == 0 && gap.last == 0 && gap.cause == MMQ_GAP_REJECTED);
  ANSWERS(MMQ_EMPTY, mmq_lanes_last_gap(others, &gap));
  COME(others, 1, 2);
  mmq_lanes_free(others);
  mmq_lanes_free(lanes);
  mmq_consumer_free(consumer);
  OK(mmq_close(queue));
}

int main(int argc, char **argv) {
  BEGIN(argc, argv);
  CHECK(MMQ_FRESH_MANUAL == 0 && MMQ_FRESH_AGE == 1 && MMQ_FRESH_MESSAGES == 2);
  CHECK(MMQ_OLDEST_FIRST == 0 && MMQ_NEWEST_STRETCH_FIRST == 1);
  outage();
  too_old();
  jumps_and_orders();
  shares();
  reopened();
  rate();
  waited_for();
  gaps();
  return 0;
}
