/* What lanes answer to wrong arguments, after a removal, and after a close. */
#define _GNU_SOURCE
#include "lanes.h"

static void refused(void) {
  mmq_queue *queue = open_at("refused");
  mmq_consumer *consumer = link_of(queue), *removed;
  const mmq_lane_options defaults = {MMQ_FRESH_MANUAL, 0, 0, 0, 0, MMQ_OLDEST_FIRST};
  mmq_lane_options options = defaults, two[2];
  mmq_stretch stretches[2];
  mmq_delivery *delivery = NULL;
  mmq_lanes *lanes = NULL, *gone;
  uint64_t first = 77;
  size_t count = 77;
  int kind;
  for (kind = 0; kind < 2; kind++) {
    options = defaults;
    options.fresh = (mmq_fresh)(kind ? -1 : 3);
    REFUSED(mmq_lanes_open(consumer, &options, &lanes));
    CHECK(strstr(text(), "MMQ_FRESH_MANUAL, MMQ_FRESH_AGE, MMQ_FRESH_MESSAGES"));
    options = defaults;
    options.order = (mmq_backlog_order)(kind ? INT32_MIN : 2);
    REFUSED(mmq_lanes_open(consumer, &options, &lanes));
    CHECK(strstr(text(), "MMQ_OLDEST_FIRST, MMQ_NEWEST_STRETCH_FIRST"));
    options = defaults;
    options.fresh = kind ? MMQ_FRESH_AGE : MMQ_FRESH_MESSAGES;
    REFUSED(mmq_lanes_open(consumer, &options, &lanes));
    CHECK(strstr(text(), "fresh_within") && strstr(text(), "nothing would be fresh") && strstr(text(), path_of("refused")));
    options.fresh_within = -1;
    REFUSED(mmq_lanes_open(consumer, &options, &lanes));
    options.fresh_within = INT64_MIN;
    REFUSED(mmq_lanes_open(consumer, &options, &lanes));
    CHECK(lanes == NULL);
    options.fresh_within = INT64_MAX;
    options.share_fresh = options.share_backlog = UINT32_MAX;
    options.backlog_rate = UINT64_MAX;
    OK(mmq_lanes_open(consumer, &options, &lanes));
    mmq_lanes_free(lanes);
    lanes = NULL;
  }
  two[0] = two[1] = defaults;
  REFUSED(mmq_lanes_open(consumer, (mmq_lane_options *)(void *)((char *)two + 1), &lanes));
  REFUSED(mmq_lanes_open(consumer, &defaults, NULL));
  OK(mmq_consumer_open(queue, "removed", &removed));
  gone = lanes_of(removed, NULL);
  OK(mmq_consumer_remove(queue, "removed"));
  ANSWERS(MMQ_NOT_FOUND, mmq_lanes_open(removed, NULL, &lanes));
  mmq_consumer_free(removed);
  REFUSED(mmq_lanes_open(removed, NULL, &lanes));
  ANSWERS(MMQ_NOT_FOUND, mmq_lanes_receive(gone, &delivery));
  ANSWERS(MMQ_NOT_FOUND, mmq_lanes_receive_fresh_timeout(gone, -1, &delivery));
  ANSWERS(MMQ_NOT_FOUND, mmq_lanes_jump(gone, &first, NULL));
  left(gone, 0, 0);
  mmq_lanes_free(gone);
  REFUSED(mmq_lanes_receive(gone, &delivery));
  CHECK(lanes == NULL && delivery == NULL && first == 77);

  put(queue, 2);
  lanes = lanes_of(consumer, &defaults);
  REFUSED(mmq_lanes_backlog(lanes, NULL, 1, &count));
  REFUSED(mmq_lanes_backlog(lanes, (mmq_stretch *)(void *)((char *)stretches + 1), 1, &count));
  REFUSED(mmq_lanes_backlog(lanes, stretches, 2, NULL));
  CHECK(count == 77);
  delivery = next(lanes, mmq_lanes_receive, 0, false);
  jumps(lanes, 1, 2);
  /* The queue is closed first. */
  OK(mmq_close(queue));
  CHECK(mmq_delivery_seq(delivery) == 0 && !mmq_delivery_is_backlog(delivery));
  mmq_delivery_free(delivery);
  CHECK(!mmq_delivery_is_backlog(delivery) && !mmq_delivery_is_backlog(NULL));
  delivery = NULL;
  ANSWERS(MMQ_CLOSED, mmq_lanes_receive(lanes, &delivery));
  CHECK(strstr(text(), path_of("refused")));
  ANSWERS(MMQ_CLOSED, mmq_lanes_receive_fresh(lanes, &delivery));
  ANSWERS(MMQ_CLOSED, mmq_lanes_receive_backlog(lanes, &delivery));
  ANSWERS(MMQ_CLOSED, mmq_lanes_receive_timeout(lanes, -1, &delivery));
  ANSWERS(MMQ_CLOSED, mmq_lanes_receive_fresh_timeout(lanes, -1, &delivery));
  ANSWERS(MMQ_CLOSED, mmq_lanes_receive_backlog_timeout(lanes, -1, &delivery));
  ANSWERS(MMQ_CLOSED, mmq_lanes_jump(lanes, &first, &first));
  ANSWERS(MMQ_CLOSED, mmq_lanes_backlog(lanes, stretches, 2, &count));
  ANSWERS(MMQ_CLOSED, mmq_lanes_open(consumer, NULL, &gone));
  CHECK(delivery == NULL && first == 77 && count == 77);
  mmq_consumer_free(consumer);
  mmq_lanes_free(lanes);
  REFUSED(mmq_lanes_jump(lanes, &first, NULL));
  mmq_lanes_free(NULL);
}

int main(int argc, char **argv) {
  BEGIN(argc, argv);
  refused();
  return 0;
}
