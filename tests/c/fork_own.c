/* A forked child opens a queue of its own and uses it with threads, while at the fork the parent's threads waited for the
 * producers' lock, for a flush and for room. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PRODUCERS = 6, EACH = 60, FORKS = 16 };

static mmq_queue *queue;
static atomic_bool stop;
static atomic_uint numbers;

/* Each enqueue waits for its flush, and a full queue for room. */
static mmq_queue *crowded(const char *name) {
  mmq_options *options = mmq_options_new();
  mmq_queue *opened;
  OK(mmq_options_set_arena_size(options, 65536));
  OK(mmq_options_set_max_bytes(options, 1 << 19));
  OK(mmq_options_set_on_full(options, MMQ_WAIT, -1));
  OK(mmq_options_set_flush_every_ops(options, 1));
  OK(mmq_open(path_of(name), options, &opened));
  mmq_options_free(options);
  return opened;
}

static void *produce(void *of_parent) {
  static const unsigned char bytes[6000];
  int count;
  for (count = 0; of_parent ? !atomic_load(&stop) : count < EACH; count++) OK(mmq_enqueue(queue, bytes, sizeof bytes, NULL));
  return NULL;
}

static void begin(pthread_t *threads, void *of_parent) {
  int thread;
  for (thread = 0; thread < PRODUCERS; thread++) CHECK(pthread_create(&threads[thread], NULL, produce, of_parent) == 0);
}

static void take(unsigned count) {
  mmq_message *message;
  for (; count > 0; count--) {
    OK(mmq_dequeue_timeout(queue, -1, &message));
    mmq_message_free(message);
  }
}

static int child(void) {
  pthread_t threads[PRODUCERS];
  char name[32];
  int thread;
  alarm(60);
  snprintf(name, sizeof name, "own %u", atomic_load(&numbers));
  /* Its locks may lie where the parent's lay. */
  OK(mmq_close(queue));
  queue = crowded(name);
  begin(threads, NULL);
  take(PRODUCERS * EACH);
  for (thread = 0; thread < PRODUCERS; thread++) CHECK(pthread_join(threads[thread], NULL) == 0);
  OK(mmq_close(queue));
  return 0;
}

int main(int argc, char **argv) {
  pthread_t threads[PRODUCERS];
  struct timespec moment = {0, 20 * 1000 * 1000};
  mmq_message *message;
  int status, thread;
  BEGIN(argc, argv);
  queue = crowded("queue");
  begin(threads, &stop);
  for (; atomic_load(&numbers) < FORKS; atomic_fetch_add(&numbers, 1)) {
    pid_t pid;
    /* Between two forks the queue moves; at every other one it is full after a while. */
    take(30);
    if (atomic_load(&numbers) % 2 == 0) nanosleep(&moment, NULL);
    pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) _exit(child());
    CHECK(waitpid(pid, &status, 0) == pid);
    if (status != 0) fprintf(stderr, "child %u ended with %#x\n", atomic_load(&numbers), (unsigned)status);
    CHECK(status == 0);
  }
  atomic_store(&stop, true);
  /* Producers that wait for room end as soon as there is some. */
  for (thread = 0; thread < 1000 && mmq_dequeue_timeout(queue, 100, &message) == MMQ_OK; thread++) mmq_message_free(message);
  for (thread = 0; thread < PRODUCERS; thread++) CHECK(pthread_join(threads[thread], NULL) == 0);
  OK(mmq_close(queue));
  return 0;
}
