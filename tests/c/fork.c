/* What a forked child may do with its parent's queue: nothing that harms it, and nothing that hangs, whatever other threads
 * were doing at the moment of the fork. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define FORKED(call) ANSWERS(MMQ_FORKED, call)

static mmq_queue *queue;
static mmq_consumer *consumer, *worker_place;
static mmq_lanes *lanes;
static mmq_iter *ahead;
static atomic_bool stop;
static unsigned long long put, taken;

static void put_one(void) {
  unsigned char bytes[3000];
  uint64_t seq;
  size_t len = (size_t)(put * 37 % sizeof bytes);
  fill(bytes, put, len);
  OK(mmq_enqueue(queue, bytes, len, &seq));
  CHECK(seq == put);
  put++;
}

/* A message goes in and comes out for both consumers, again and again. */
static void *traffic(void *unused) {
  (void)unused;
  while (!atomic_load(&stop)) {
    mmq_message *message;
    mmq_consumer *passing;
    mmq_delivery *delivery;
    mmq_stats stats;
    uint64_t seq;
    size_t stretches;
    put_one();
    OK(mmq_dequeue(queue, &message));
    CHECK(mmq_message_seq(message) == taken && mmq_message_len(message) == taken * 37 % 3000);
    CHECK(holds(mmq_message_data(message), taken, mmq_message_len(message)));
    mmq_message_free(message);
    taken++;
    OK(mmq_lanes_receive(lanes, &delivery));
    OK(mmq_delivery_ack(delivery));
    OK(mmq_lanes_jump(lanes, &seq, NULL));
    OK(mmq_lanes_backlog(lanes, NULL, 0, &stretches));
    if (put % 7 == 0) OK(mmq_flush(queue));
    if (put % 5 == 0) {
      OK(mmq_consumer_open(queue, "passing", &passing));
      mmq_consumer_free(passing);
      OK(mmq_consumer_remove(queue, "passing"));
    }
    stats.struct_size = sizeof stats;
    OK(mmq_read_stats(queue, &stats));
  }
  return NULL;
}

/* One iterator reads ahead meanwhile, so that most forks find a thread in it. */
static void *looks(void *unused) {
  (void)unused;
  while (!atomic_load(&stop)) {
    mmq_message *message;
    mmq_status status = mmq_iter_next(ahead, &message);
    CHECK(status == MMQ_OK || status == MMQ_EMPTY);
    if (status == MMQ_OK) mmq_message_free(message);
  }
  return NULL;
}

/* All of it in a child that was forked just now. */
static int child(mmq_message *lent, mmq_delivery *kept, mmq_delivery *other_kept) {
  mmq_message *message = NULL;
  mmq_consumer *other = NULL;
  mmq_queue *again = NULL;
  mmq_delivery *delivery = NULL;
  mmq_lanes *others = NULL;
  mmq_stretch stretch;
  mmq_slice slice = {"child", 5};
  mmq_consumer_stats figures;
  mmq_copied_message copied;
  mmq_gap gap;
  char buf[16];
  size_t len, count;
  uint64_t seq;
  alarm(60);
  FORKED(mmq_enqueue(queue, "child", 5, &seq));
  FORKED(mmq_enqueue_batch(queue, &slice, 1, &seq));
  FORKED(mmq_enqueue_parts(queue, &slice, 1, &seq));
  FORKED(mmq_peek(queue, &message));
  FORKED(mmq_dequeue(queue, &message));
  FORKED(mmq_dequeue_timeout(queue, 50, &message));
  FORKED(mmq_peek_into(queue, buf, sizeof buf, &len, &seq));
  FORKED(mmq_dequeue_into(queue, buf, sizeof buf, &len, &seq));
  FORKED(mmq_dequeue_batch_into(queue, buf, sizeof buf, &copied, 1, &count, &len));
  FORKED(mmq_skip(queue, &seq));
  FORKED(mmq_flush(queue));
  FORKED(mmq_wait_durable(queue, 1u << 30));
  FORKED(mmq_consumer_open(queue, "child", &other));
  FORKED(mmq_consumer_remove(queue, "beside"));
  FORKED(mmq_consumer_dequeue(consumer, &message));
  FORKED(mmq_consumer_skip(consumer, &seq));
  FORKED(mmq_consumer_seek(consumer, 0));
  figures.struct_size = sizeof figures;
  OK(mmq_consumer_read_stats(worker_place, &figures));
  CHECK(figures.messages == 0 && figures.in_flight == 0);
  FORKED(mmq_receive(queue, &delivery));
  FORKED(mmq_consumer_receive(worker_place, &delivery));
  FORKED(mmq_delivery_ack(kept));
  FORKED(mmq_iter_next(ahead, &message));
  FORKED(mmq_iter_last_gap(ahead, &gap));
  FORKED(mmq_last_gap(queue, &gap));
  FORKED(mmq_lanes_open(consumer, NULL, &others));
  FORKED(mmq_lanes_receive(lanes, &delivery));
  FORKED(mmq_lanes_receive_fresh(lanes, &delivery));
  FORKED(mmq_lanes_receive_backlog(lanes, &delivery));
  FORKED(mmq_lanes_receive_timeout(lanes, 50, &delivery));
  FORKED(mmq_lanes_receive_fresh_timeout(lanes, 50, &delivery));
  FORKED(mmq_lanes_receive_backlog_timeout(lanes, -1, &delivery));
  FORKED(mmq_lanes_jump(lanes, &seq, NULL));
  FORKED(mmq_lanes_backlog(lanes, &stretch, 1, &len));
  CHECK(!mmq_delivery_is_backlog(other_kept));
  mmq_delivery_free(other_kept);
  /* No dead letter of the child's own queue can ever go there. */
  OK(mmq_open(path_of("own"), NULL, &again));
  FORKED(mmq_set_redelivery(again, 0, 0, 0, 1, queue));
  OK(mmq_close(again));
  /* Everything can be given back. The bytes that were lent before are the parent's: they are not looked at. */
  mmq_message_free(lent);
  mmq_iter_free(ahead);
  mmq_lanes_free(lanes);
  mmq_consumer_free(consumer);
  OK(mmq_close(queue));
  ANSWERS(MMQ_LOCKED, mmq_open(path_of("queue"), NULL, &again));
  /* A queue of the child's own is like any other. */
  OK(mmq_open(path_of("own"), NULL, &again));
  OK(mmq_enqueue(again, "child", 5, NULL));
  OK(mmq_dequeue(again, &message));
  mmq_message_free(message);
  OK(mmq_close(again));
  return 0;
}

static void fork_and_wait(mmq_message *lent, unsigned long long number, mmq_delivery *one, mmq_delivery *two) {
  int status = -1;
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    /* Destructors run in one of two. */
    if (number % 2 == 0) exit(child(lent, one, two));
    _exit(child(lent, one, two));
  }
  CHECK(waitpid(pid, &status, 0) == pid);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fprintf(stderr, "the child ended with %#x\n", (unsigned)status);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv) {
  mmq_options *options = mmq_options_new();
  mmq_queue *again = NULL;
  mmq_message *lent;
  mmq_delivery *one, *two;
  pthread_t worker, looker;
  uint64_t len;
  int round;
  BEGIN(argc, argv);
  OK(mmq_options_set_arena_size(options, 65536));
  OK(mmq_options_set_flush_every_ms(options, 5));
  for (round = 0; round < 30; round++) {
    bool busy = round >= 5;
    OK(mmq_open(path_of("queue"), options, &queue));
    OK(mmq_consumer_open(queue, "beside", &consumer));
    OK(mmq_lanes_open(consumer, NULL, &lanes));
    OK(mmq_iter_open(queue, &ahead));
    while (put < 2) put_one();
    OK(mmq_consumer_open(queue, "worker", &worker_place));
    OK(mmq_consumer_seek(worker_place, taken));
    OK(mmq_consumer_receive(worker_place, &one));
    OK(mmq_consumer_receive(worker_place, &two));
    CHECK(mmq_delivery_seq(one) == taken && mmq_delivery_seq(two) == taken + 1);
    OK(mmq_peek(queue, &lent));
    CHECK(mmq_message_seq(lent) == taken);
    atomic_store(&stop, false);
    if (busy) CHECK(pthread_create(&worker, NULL, traffic, NULL) == 0 && pthread_create(&looker, NULL, looks, NULL) == 0);
    fork_and_wait(lent, mmq_message_seq(lent), one, two);
    fork_and_wait(lent, mmq_message_seq(lent), one, two);
    atomic_store(&stop, true);
    if (busy) CHECK(pthread_join(worker, NULL) == 0 && pthread_join(looker, NULL) == 0);
    /* The parent's queue is whole, and still its own. */
    ANSWERS(MMQ_LOCKED, mmq_open(path_of("queue"), NULL, &again));
    OK(mmq_len(queue, &len));
    CHECK(len == put - taken && len == 2);
    OK(mmq_consumer_len(consumer, &len));
    CHECK(len == 2);
    /* The child gave nothing back and acknowledged nothing. */
    OK(mmq_delivery_ack(one));
    mmq_delivery_free(two);
    mmq_consumer_free(worker_place);
    CHECK(holds(mmq_message_data(lent), mmq_message_seq(lent), mmq_message_len(lent)));
    mmq_message_free(lent);
    mmq_consumer_free(consumer);
    mmq_iter_free(ahead);
    OK(mmq_close(queue));
    mmq_lanes_free(lanes);
  }
  mmq_options_free(options);
  printf("%llu messages passed beside %d forks\n", taken, 2 * round);
  return 0;
}
