/* A look from outside sees who has the queue and what is in it, and a later library fills no more than the caller has. */
#define _GNU_SOURCE
#include "check.h"

#include <unistd.h>

static mmq_inspection look(const char *dir) {
  mmq_inspection seen;
  memset(&seen, 0xff, sizeof seen);
  seen.struct_size = sizeof seen;
  OK(mmq_inspect(dir, &seen));
  CHECK(seen.struct_size == sizeof seen);
  return seen;
}

int main(int argc, char **argv) {
  if (argc > 1) check_root = argv[1];
  mmq_inspection seen = {0}, again;
  seen.struct_size = sizeof seen;
  ANSWERS(MMQ_NOT_FOUND, mmq_inspect(path_of("nowhere"), &seen));

  mmq_queue *queue = NULL;
  const char *dir = path_of("inspected");
  OK(mmq_open(dir, NULL, &queue));
  for (int number = 0; number < 100; number++) OK(mmq_enqueue(queue, &number, sizeof number, NULL));
  int first = 0;
  size_t len = 0;
  OK(mmq_dequeue_into(queue, &first, sizeof first, &len, NULL));
  seen = look(dir);
#if defined(__linux__)
  CHECK(seen.state == 0 && seen.owner_pid == (uint32_t)getpid());
#endif
  CHECK(seen.next_seq == 100 && seen.oldest_seq == 0 && seen.messages == 99 && seen.consumers == 1);
  CHECK(seen.segments == 1 && seen.bytes > 99 * sizeof first && seen.disk_bytes >= seen.bytes && seen.poisoned == 0);
  OK(mmq_flush(queue));
  seen = look(dir);
  CHECK(seen.durable_seq == 100);
  OK(mmq_close(queue));
  again = look(dir);
  CHECK(again.state == 1 && again.owner_pid == 0 && again.messages == 99);
  CHECK(memcmp(again.queue_id, seen.queue_id, sizeof seen.queue_id) == 0);

  /* A caller that was compiled with a shorter struct. */
  memset(&seen, 0xff, sizeof seen);
  seen.struct_size = offsetof(mmq_inspection, oldest_seq);
  OK(mmq_inspect(dir, &seen));
  CHECK(seen.next_seq == 100 && seen.oldest_seq == UINT64_MAX);
  seen.struct_size = 0;
  ANSWERS(MMQ_INVALID_ARGUMENT, mmq_inspect(dir, &seen));
  puts("looked from outside");
  return 0;
}
