/* The C side of the comparison in main.rs: the same calls, 128 bytes each, against the shared library. Prints nanoseconds of
 * processor time per call.
 * Compiled as C++ it makes the calls of mmq.hpp. */
#define _POSIX_C_SOURCE 200809L
#ifdef __cplusplus
#include <mmq.hpp>
#else
#include <mmq.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void check(int holds) {
  if (!holds) {
    fprintf(stderr, "a call failed\n");
    exit(1);
  }
}

int main(int argc, char **argv) {
  const char *dir = argc > 2 ? argv[1] : ".";
  const long calls = argc > 2 ? atol(argv[2]) : 1000;
  char message[128], buf[128];
  double begin;
  long call;
  memset(message, 7, sizeof message);
#ifdef __cplusplus
  mmq::Queue queue(dir);
  const std::string_view view(message, sizeof message);
#define ENQUEUE() queue.enqueue(view)
#define PEEK() check(queue.peek()->data()[0] == 7)
#define DEQUEUE() check(queue.dequeue()->data()[0] == 7)
#define PEEK_INTO() check(queue.peek_into(buf, sizeof buf).len == 128)
#define DEQUEUE_INTO() check(queue.dequeue_into(buf, sizeof buf).len == 128)
#else
  mmq_queue *queue;
  mmq_message *lent;
  size_t len = 0;
  check(mmq_open(dir, NULL, &queue) == MMQ_OK);
#define ENQUEUE() check(mmq_enqueue(queue, message, sizeof message, NULL) == MMQ_OK)
#define PEEK() (check(mmq_peek(queue, &lent) == MMQ_OK && mmq_message_data(lent)[0] == 7), mmq_message_free(lent))
#define DEQUEUE() (check(mmq_dequeue(queue, &lent) == MMQ_OK && mmq_message_data(lent)[0] == 7), mmq_message_free(lent))
#define PEEK_INTO() check(mmq_peek_into(queue, buf, sizeof buf, &len, NULL) == MMQ_OK && len == 128)
#define DEQUEUE_INTO() check(mmq_dequeue_into(queue, buf, sizeof buf, &len, NULL) == MMQ_OK && len == 128)
#endif
#define TIMED(name, what)                                                \
  begin = now();                                                         \
  for (call = 0; call < calls; call++) what;                             \
  printf("%s %.3f\n", name, (now() - begin) / (double)calls)

  /* The first filling pays for fresh files; what is measured goes through drained segments. */
  for (call = 0; call < calls; call++) ENQUEUE();
  for (call = 0; call < calls; call++) DEQUEUE_INTO();
  TIMED("enqueue", ENQUEUE());
  TIMED("peek", PEEK());
  TIMED("peek_into", PEEK_INTO());
  TIMED("dequeue_into", DEQUEUE_INTO());
  for (call = 0; call < calls; call++) ENQUEUE();
  TIMED("dequeue", DEQUEUE());
  TIMED("pair", (ENQUEUE(), DEQUEUE_INTO()));
#ifndef __cplusplus
  check(mmq_close(queue) == MMQ_OK);
#endif
  return 0;
}
