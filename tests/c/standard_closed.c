/* A program that has closed its standard input, output and error: what its code prints goes into no file of a queue. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#define MESSAGES 600

static int are_closed(void) {
  return fcntl(0, F_GETFD) == -1 && fcntl(1, F_GETFD) == -1 && fcntl(2, F_GETFD) == -1;
}

/* Makes the queue, or goes on with it, and says whether it left the three descriptors alone. */
static int puts_in(unsigned long long from) {
  static unsigned char bytes[900];
  mmq_options *options = mmq_options_new();
  mmq_queue *queue;
  unsigned long long number;
  int closed;
  OK(mmq_options_set_arena_size(options, 65536));
  OK(mmq_options_set_flush_every_ops(options, 1));
  OK(mmq_open(path_of("standard"), options, &queue));
  mmq_options_free(options);
  closed = are_closed();
  for (number = from; number < from + MESSAGES / 2; number++) {
    fill(bytes, number, sizeof bytes);
    OK(mmq_enqueue(queue, bytes, sizeof bytes, NULL));
    closed = closed && are_closed();
  }
  OK(mmq_close(queue));
  return closed;
}

static int files_in(const char *path) {
  DIR *directory = opendir(path);
  int files = 0;
  if (directory == NULL) return -1;
  while (readdir(directory) != NULL) files++;
  closedir(directory);
  return files;
}

/* Only the three descriptors are free: puts that need a new file fail, and leave none. Returns whether it was so. */
static int runs_out(int some) {
  static unsigned char bytes[60000];
  struct rlimit most, less;
  mmq_queue *queue;
  int number, before, after, failed = 0, free_one;
  OK(mmq_open(path_of("limited"), NULL, &queue));
  OK(mmq_flush(queue)); /* No later flush gives a descriptor back that a put would wait for. */
  free_one = fcntl(some, F_DUPFD, 3);
  close(free_one);
  getrlimit(RLIMIT_NOFILE, &most);
  less = most;
  less.rlim_cur = (rlim_t)free_one;
  setrlimit(RLIMIT_NOFILE, &less);
  for (number = 0; number < 4000 && !failed; number++) failed = mmq_enqueue(queue, bytes, sizeof bytes, NULL) != MMQ_OK;
  before = files_in(path_of("limited"));
  for (number = 0; number < 5; number++) failed = mmq_enqueue(queue, bytes, sizeof bytes, NULL) != MMQ_OK && failed;
  after = files_in(path_of("limited"));
  setrlimit(RLIMIT_NOFILE, &most);
  OK(mmq_enqueue(queue, bytes, sizeof bytes, NULL));
  OK(mmq_close(queue));
  return failed && before > 2 && before == after;
}

/* Sockets on both sides of a shared queue, and what is readable while messages wait. */
static int shares(void) {
  mmq_options *options = mmq_options_new();
  mmq_queue *queue;
  mmq_client *client;
  int closed, ready;
  OK(mmq_options_set_shared(options, true));
  OK(mmq_open(path_of("shared"), options, &queue));
  mmq_options_free(options);
  closed = are_closed();
  OK(mmq_connect(path_of("shared"), &client));
  OK(mmq_client_enqueue(client, "a", 1, NULL));
  closed = are_closed() && closed;
  OK(mmq_ready_fd(queue, &ready));
  closed = are_closed() && ready > 2 && closed;
  mmq_client_free(client);
  OK(mmq_close(queue));
  return closed;
}

int main(int argc, char **argv) {
  mmq_queue *queue;
  mmq_message *message;
  unsigned long long number;
  int descriptor, closed, shared, ran_out, saved[3];
  BEGIN(argc, argv);
  for (descriptor = 0; descriptor < 3; descriptor++) {
    saved[descriptor] = fcntl(descriptor, F_DUPFD_CLOEXEC, 20);
    close(descriptor);
  }
  closed = puts_in(0);
  closed = puts_in(MESSAGES / 2) && closed;
  shared = shares();
  ran_out = runs_out(saved[0]);
  for (descriptor = 0; descriptor < 3; descriptor++) dup2(saved[descriptor], descriptor);
  CHECK(closed);
  CHECK(shared);
  CHECK(ran_out);
  OK(mmq_open(path_of("standard"), NULL, &queue));
  for (number = 0; number < MESSAGES; number++) {
    OK(mmq_dequeue(queue, &message));
    CHECK(mmq_message_seq(message) == number);
    CHECK(holds(mmq_message_data(message), number, mmq_message_len(message)));
    mmq_message_free(message);
  }
  OK(mmq_close(queue));
  return 0;
}
