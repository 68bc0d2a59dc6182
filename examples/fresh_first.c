/* A link that is down for a while: readings wait in the queue meanwhile. Once it is back the newest go first, and what waited is
 * sent beside them, marked as late, from the oldest on. With MMQ_EXAMPLE_DIR the queue is kept: stop the program with Ctrl-C and
 * start it again, and it goes on with what is left of both. */
#define _DEFAULT_SOURCE
#include <mmq.h>
#include <stdio.h>
#include <stdlib.h>

#include "temporary.h"

/* Readings in one second. */
#define RATE 20
/* What the link sends in one second while it is up. */
#define LINK 60
/* The link is down from the first of these seconds on, and up again from the second. */
#define DOWN 10
#define UP 70
#define SECONDS 120

struct sent {
  unsigned long long fresh, late, lost;
  /* The number behind the newest reading. */
  uint64_t newest;
};

static void tell(mmq_status status) {
  char text[512];
  mmq_last_error(text, sizeof text);
  fprintf(stderr, "%s: %s\n", mmq_status_message(status), text);
}

static void check(mmq_status status) {
  if (status == MMQ_OK) return;
  tell(status);
  exit(1);
}

/* Sends what the link takes: new readings and old ones in turn. */
static void send_some(mmq_lanes *lanes, int most, struct sent *sent) {
  while (most > 0) {
    mmq_delivery *reading;
    mmq_status status = mmq_lanes_receive(lanes, &reading);
    if (status == MMQ_EMPTY) return;
    if (status == MMQ_GAP) { /* reported once; what lies behind still comes */
      mmq_gap gap;
      tell(status);
      check(mmq_lanes_last_gap(lanes, &gap));
      sent->lost += gap.last - gap.first + 1;
      continue;
    }
    check(status);
    /* Here it would be sent. Until it is acknowledged it is the queue's. */
    if (mmq_delivery_is_backlog(reading)) {
      sent->late++;
    } else {
      sent->fresh++;
    }
    if (mmq_delivery_seq(reading) >= sent->newest) sent->newest = mmq_delivery_seq(reading) + 1;
    check(mmq_delivery_ack(reading));
    most--;
  }
}

static unsigned long long waiting(mmq_consumer *link) {
  uint64_t len;
  check(mmq_consumer_len(link, &len));
  return len;
}

int main(void) {
  mmq_queue *queue;
  mmq_consumer *link;
  mmq_lanes *lanes;
  mmq_lane_options options = {0};
  struct sent sent = {0, 0, 0, 0};
  int second, reading;
  check(mmq_open(make_temporary_dir(), NULL, &queue));
  check(mmq_consumer_open(queue, "link", &link));
  /* In a real program the clock decides: MMQ_FRESH_AGE, 2000. Here seconds are turns of a loop. */
  options.fresh = MMQ_FRESH_MESSAGES;
  options.fresh_within = 2 * RATE;
  check(mmq_lanes_open(link, &options, &lanes));
  for (second = 0; second < SECONDS; second++) {
    for (reading = 0; reading < RATE; reading++) {
      char text[64];
      int len = snprintf(text, sizeof text, "second %d, reading %d", second, reading);
      check(mmq_enqueue(queue, text, (size_t)len, NULL));
    }
    if (second < DOWN || second >= UP) send_some(lanes, LINK, &sent);
    if (second % 10 == 0 || second == UP + 1) {
      mmq_stats stats;
      stats.struct_size = sizeof stats;
      check(mmq_read_stats(queue, &stats));
      printf("second %d: %llu behind, %llu wait for the link\n", second, (unsigned long long)(stats.next_seq - sent.newest),
             waiting(link));
    }
  }
  if (sent.lost > 0) printf("%llu will never come\n", sent.lost);
  printf("%llu sent as they came, %llu sent late, %llu left\n", sent.fresh, sent.late, waiting(link));
  mmq_lanes_free(lanes);
  mmq_consumer_free(link);
  check(mmq_close(queue));
  remove_temporary_dir();
  return 0;
}
