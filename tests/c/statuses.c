/* Every status is reached, with a text that says what happened. */
#define _GNU_SOURCE
#include "check.h"

#include <errno.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__linux__)
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif

/* Where the checksum lies in the index header. */
#define SUM_AT 60

static const char *text(void) {
  static char buf[5200];
  size_t len = mmq_last_error(buf, sizeof buf);
  CHECK(len == strlen(buf));
  return buf;
}

static mmq_queue *open_at(const char *name) {
  mmq_queue *queue = NULL;
  OK(mmq_open(path_of(name), NULL, &queue));
  return queue;
}

static void answers(void) {
  mmq_queue *queue = open_at("answers");
  mmq_message *message = NULL;
  char buf[4];
  size_t len = 0;
  CHECK(mmq_last_error(NULL, 0) == 0);
  ANSWERS(MMQ_EMPTY, mmq_dequeue(queue, &message));
  ANSWERS(MMQ_TIMED_OUT, mmq_dequeue_timeout(queue, 1, &message));
  ANSWERS(MMQ_TIMED_OUT, mmq_dequeue_timeout(queue, 0, &message));
  OK(mmq_enqueue(queue, "hello", 5, NULL));
  ANSWERS(MMQ_BUFFER_TOO_SMALL, mmq_dequeue_into(queue, buf, sizeof buf, &len, NULL));
  CHECK(len == 5);
  CHECK(mmq_last_error(NULL, 0) == 0);
  OK(mmq_close(queue));
}

static void gap_and_full(void) {
  mmq_options *options = mmq_options_new();
  mmq_queue *queue;
  mmq_message *message;
  mmq_gap gap = {7, 7, MMQ_GAP_DAMAGED};
  char bytes[1000] = {0};
  mmq_status status;
  uint64_t seq = 0, refused = 0;
  OK(mmq_options_set_arena_size(options, 4096));
  OK(mmq_options_set_max_bytes(options, 128 * 1024));
  OK(mmq_open(path_of("gap"), options, &queue));
  while ((status = mmq_enqueue(queue, bytes, sizeof bytes, &seq)) == MMQ_OK) refused = seq + 1;
  ANSWERS(MMQ_FULL, status);
  CHECK(seq + 1 == refused && strstr(text(), "full") && strstr(text(), "max_bytes 131072") && strstr(text(), path_of("gap")));
  ANSWERS(MMQ_MESSAGE_TOO_LARGE, mmq_enqueue_batch(queue, &(mmq_slice){bytes, (size_t)1 << 33}, 1, NULL));
  CHECK(strstr(text(), "8589934592") && strstr(text(), path_of("gap")));
  OK(mmq_close(queue));

  OK(mmq_options_set_on_full(options, MMQ_DROP_OLDEST, 0));
  OK(mmq_open(path_of("gap"), options, &queue));
  ANSWERS(MMQ_EMPTY, mmq_last_gap(queue, &gap));
  CHECK(gap.first == 7);
  OK(mmq_enqueue(queue, bytes, sizeof bytes, &seq));
  CHECK(seq == refused);
  /* What was dropped before the first consumer existed is reported to it, and what is dropped later. */
  ANSWERS(MMQ_GAP, mmq_peek(queue, &message));
  OK(mmq_peek(queue, &message));
  mmq_message_free(message);
  while (seq < 3 * refused) OK(mmq_enqueue(queue, bytes, sizeof bytes, &seq));
  ANSWERS(MMQ_GAP, mmq_dequeue(queue, &message));
  CHECK(strstr(text(), "dropped"));
  OK(mmq_last_gap(queue, &gap));
  CHECK(gap.first < refused && gap.last > gap.first && gap.last < seq && gap.cause == MMQ_GAP_DROPPED);
  OK(mmq_dequeue(queue, &message));
  CHECK(mmq_message_seq(message) == gap.last + 1);
  mmq_message_free(message);
  OK(mmq_close(queue));

  OK(mmq_options_set_on_full(options, MMQ_WAIT, 20));
  OK(mmq_open(path_of("gap"), options, &queue));
  do status = mmq_enqueue(queue, bytes, sizeof bytes, NULL);
  while (status == MMQ_OK);
  ANSWERS(MMQ_FULL, status);
  OK(mmq_close(queue));
  mmq_options_free(options);
}

/* A message that is too old, and one whose bytes on disk were changed. */
static void expired_and_damaged(void) {
  static const char secret[] = "these very bytes are looked for in the file";
  static unsigned char file[1 << 20];
  mmq_options *options = mmq_options_new();
  mmq_queue *queue;
  mmq_message *message = NULL;
  mmq_gap gap;
  FILE *segment;
  size_t len, at;
  OK(mmq_options_set_max_age_ms(options, 20));
  OK(mmq_open(path_of("expired"), options, &queue));
  mmq_options_free(options);
  OK(mmq_enqueue(queue, "old", 3, NULL));
  usleep(300 * 1000);
  ANSWERS(MMQ_GAP, mmq_dequeue(queue, &message));
  OK(mmq_last_gap(queue, &gap));
  CHECK(gap.first == 0 && gap.last == 0 && gap.cause == MMQ_GAP_EXPIRED);
  OK(mmq_close(queue));

  queue = open_at("damaged");
  OK(mmq_enqueue(queue, "before", 6, NULL));
  OK(mmq_enqueue(queue, secret, sizeof secret, NULL));
  OK(mmq_enqueue(queue, "after", 5, NULL));
  OK(mmq_close(queue));
  segment = fopen(path_of("damaged/segment-00000000"), "r+b");
  CHECK(segment);
  len = fread(file, 1, sizeof file, segment);
  for (at = 0; at + sizeof secret <= len && memcmp(file + at, secret, sizeof secret) != 0; at++) continue;
  CHECK(at + sizeof secret <= len && fseek(segment, (long)at, SEEK_SET) == 0 && fputc('T', segment) == 'T');
  CHECK(fclose(segment) == 0);
  queue = open_at("damaged");
  OK(mmq_skip(queue, NULL));
  ANSWERS(MMQ_GAP, mmq_dequeue(queue, &message));
  OK(mmq_last_gap(queue, &gap));
  CHECK(gap.first == 1 && gap.last == 1 && gap.cause == MMQ_GAP_DAMAGED && message == NULL);
  OK(mmq_dequeue(queue, &message));
  CHECK(mmq_message_seq(message) == 2 && memcmp(mmq_message_data(message), "after", 5) == 0);
  mmq_message_free(message);
  OK(mmq_close(queue));
}

static void refused_openings(void) {
  mmq_options *options = mmq_options_new();
  mmq_queue *queue = open_at("refused"), *none = NULL;
  char pid[32];
  struct stat about;
  FILE *file;
  snprintf(pid, sizeof pid, "process %ld", (long)getpid());
  ANSWERS(MMQ_LOCKED, mmq_open(path_of("refused"), NULL, &none));
  CHECK(strstr(text(), pid) && strstr(text(), "refused"));
  OK(mmq_close(queue));

  OK(mmq_options_set_create(options, false));
  ANSWERS(MMQ_NOT_FOUND, mmq_open(path_of("nowhere"), options, &none));
  OK(mmq_options_set_create(options, true));
  OK(mmq_options_set_arena_size(options, 5000));
  ANSWERS(MMQ_INVALID_OPTION, mmq_open(path_of("refused"), options, &none));
  CHECK(strstr(text(), "arena_size"));
  OK(mmq_options_set_arena_size(options, 4096));
  OK(mmq_options_set_max_mapped_arenas(options, 2));
  ANSWERS(MMQ_INVALID_OPTION, mmq_open(path_of("refused"), options, &none));
  CHECK(strstr(text(), "max_mapped_arenas"));
  OK(mmq_options_set_max_mapped_arenas(options, 3));
  OK(mmq_options_set_mode(options, 640));
  ANSWERS(MMQ_INVALID_OPTION, mmq_open(path_of("refused"), options, &none));
  CHECK(strstr(text(), "mode") && strstr(text(), "in C 0640"));
  OK(mmq_options_set_mode(options, 0640));
  OK(mmq_open(path_of("refused"), options, &queue));
  OK(mmq_close(queue));
  CHECK(stat(path_of("refused/index"), &about) == 0 && (about.st_mode & 0777) == 0640);
  CHECK(stat(path_of("refused"), &about) == 0 && (about.st_mode & 0777) == 0750);
  mmq_options_free(options);

  file = fopen(path_of("file"), "w");
  CHECK(file && fclose(file) == 0);
  ANSWERS(MMQ_IO, mmq_open(path_of("file"), NULL, &none));
  CHECK(strstr(text(), "file"));
  ANSWERS(MMQ_INVALID_ARGUMENT, mmq_open("", NULL, &none));
  CHECK(strcmp(text(), "dir: the path is empty") == 0);
  CHECK(none == NULL);
}

/* Any bytes that a path may have. */
static void path_of_any_bytes(void) {
  mmq_queue *queue = open_at("not \xff\xfe UTF-8 \xc3");
  struct stat status;
  CHECK(stat(path_of("not \xff\xfe UTF-8 \xc3/index"), &status) == 0);
  OK(mmq_close(queue));
}

static uint64_t word_at(const unsigned char *bytes) {
  uint64_t word = 0;
  int at;
  for (at = 7; at >= 0; at--) word = word << 8 | bytes[at];
  return word;
}

/* The checksum of a header of SUM_AT bytes: the lower half of XXH3-64, as its authors define it for 33 to 64 bytes. */
static uint32_t checksum(const unsigned char *header) {
  static const uint64_t secret[8] = {0xbe4ba423396cfeb8u, 0x1cad21f72c81017cu, 0xdb979083e96dd4deu, 0x1f67b3b7a4a44072u,
                                     0x78e5c0cc4ee679cbu, 0x2172ffcc7dd05a82u, 0x8e2443f7744608b8u, 0x4c263a81e69035e0u};
  static const int from[4] = {0, SUM_AT - 16, 16, SUM_AT - 32};
  uint64_t sum = SUM_AT * 0x9e3779b185ebca87u;
  int at;
  for (at = 0; at < 4; at++) {
    __extension__ typedef unsigned __int128 twice;
    twice product = (twice)(word_at(header + from[at]) ^ secret[2 * at]) * (word_at(header + from[at] + 8) ^ secret[2 * at + 1]);
    sum += (uint64_t)product ^ (uint64_t)(product >> 64);
  }
  sum = (sum ^ sum >> 37) * 0x165667919e3779f9u;
  return (uint32_t)(sum ^ sum >> 32);
}

/* The index says that a later version wrote it. */
static void later_format(void) {
  mmq_queue *queue = open_at("later");
  unsigned char header[64];
  uint32_t sum;
  FILE *index;
  int at;
  OK(mmq_enqueue(queue, "x", 1, NULL));
  OK(mmq_close(queue));
  index = fopen(path_of("later/index"), "r+b");
  CHECK(index && fread(header, 1, sizeof header, index) == sizeof header);
  sum = checksum(header);
  for (at = 0; at < 4; at++) CHECK(header[SUM_AT + at] == (unsigned char)(sum >> 8 * at));
  header[8] = 77;
  sum = checksum(header);
  for (at = 0; at < 4; at++) header[SUM_AT + at] = (unsigned char)(sum >> 8 * at);
  rewind(index);
  CHECK(fwrite(header, 1, sizeof header, index) == sizeof header && fclose(index) == 0);
  queue = NULL;
  ANSWERS(MMQ_UNSUPPORTED_FORMAT, mmq_open(path_of("later"), NULL, &queue));
  CHECK(strstr(text(), "77") && queue == NULL);
}

/* A directory with somebody's file in it: refused, and named. */
static void no_queue(void) {
  mmq_queue *queue = NULL;
  FILE *file;
  CHECK(mkdir(path_of("project"), 0700) == 0);
  file = fopen(path_of("project/page.html"), "w");
  CHECK(file && fputs("hello", file) >= 0 && fclose(file) == 0);
  ANSWERS(MMQ_NOT_A_QUEUE, mmq_open(path_of("project"), NULL, &queue));
  CHECK(strstr(text(), "project") && strstr(text(), "page.html") && queue == NULL);
  CHECK(access(path_of("project/page.html"), F_OK) == 0 && access(path_of("project/index"), F_OK) != 0);
}

static void closed_and_removed(void) {
  mmq_queue *queue = open_at("closed");
  mmq_consumer *one, *two, *none = NULL;
  mmq_message *message = NULL;
  uint64_t seq;
  int ready = -1;
  OK(mmq_consumer_open(queue, "one", &one));
  OK(mmq_consumer_open(queue, "two", &two));
  ANSWERS(MMQ_INVALID_ARGUMENT, mmq_consumer_open(queue, "", &none));
  ANSWERS(MMQ_INVALID_ARGUMENT, mmq_consumer_open(queue, "\xff", &none));
  ANSWERS(MMQ_INVALID_ARGUMENT, mmq_consumer_fork(one, "two", &none));
  ANSWERS(MMQ_NOT_FOUND, mmq_consumer_remove(queue, "three"));
  OK(mmq_consumer_remove(queue, "two"));
  ANSWERS(MMQ_NOT_FOUND, mmq_consumer_peek(two, &message));
  ANSWERS(MMQ_NOT_FOUND, mmq_consumer_fork(two, "three", &none));
  ANSWERS(MMQ_NOT_FOUND, mmq_consumer_ready_fd(two, &ready));
  ANSWERS(MMQ_NOT_FOUND, mmq_consumer_set_max_in_flight(two, 1));
  ANSWERS(MMQ_NOT_FOUND, mmq_consumer_seek(one, 5));
  ANSWERS(MMQ_NOT_FOUND, mmq_wait_durable(queue, 5));
  OK(mmq_consumer_ready_fd(one, &ready));
  OK(mmq_close(queue));
  ANSWERS(MMQ_CLOSED, mmq_consumer_ready_fd(one, &ready));
  ANSWERS(MMQ_CLOSED, mmq_consumer_dequeue(one, &message));
  ANSWERS(MMQ_CLOSED, mmq_consumer_dequeue_timeout(one, -1, &message));
  ANSWERS(MMQ_CLOSED, mmq_consumer_skip(one, &seq));
  ANSWERS(MMQ_CLOSED, mmq_consumer_fork(one, "three", &none));
  CHECK(strstr(text(), path_of("closed")) && strstr(text(), "open it again"));
  ANSWERS(MMQ_INVALID_ARGUMENT, mmq_enqueue(queue, "x", 1, NULL));
  mmq_consumer_free(one);
  mmq_consumer_free(two);
}

static void begins_where_it_is_asked_to(void) {
  mmq_queue *queue = open_at("begins");
  mmq_consumer *end, *third, *oldest, *none = NULL;
  mmq_message *message = NULL;
  uint64_t seq, left;
  int number, ready = -1;
  for (number = 0; number < 5; number++) OK(mmq_enqueue(queue, "x", 1, NULL));
  OK(mmq_consumer_open_at(queue, "end", MMQ_START_END, 99, &end));
  OK(mmq_consumer_open_at(queue, "third", MMQ_START_SEQ, 2, &third));
  OK(mmq_consumer_open_at(queue, "oldest", MMQ_START_OLDEST, 99, &oldest));
  ANSWERS(MMQ_EMPTY, mmq_consumer_skip(end, &seq));
  OK(mmq_consumer_skip(third, &seq));
  CHECK(seq == 2);
  OK(mmq_consumer_skip(oldest, &seq));
  CHECK(seq == 0);
  ANSWERS(MMQ_NOT_FOUND, mmq_consumer_open_at(queue, "beyond", MMQ_START_SEQ, 6, &none));
  ANSWERS(MMQ_INVALID_ARGUMENT, mmq_consumer_open_at(queue, "odd", (mmq_start)3, 0, &none));
  CHECK(strstr(text(), "MMQ_START_SEQ") && none == NULL);
  /* The queue's own consumer: looking does not make it. */
  OK(mmq_ready_fd(queue, &ready));
  ANSWERS(MMQ_NOT_FOUND, mmq_consumer_remove(queue, ""));
  OK(mmq_dequeue(queue, &message));
  mmq_message_free(message);
  OK(mmq_consumer_remove(queue, ""));
  ANSWERS(MMQ_NOT_FOUND, mmq_consumer_remove(queue, ""));
  OK(mmq_peek(queue, &message));
  CHECK(mmq_message_seq(message) == 0);
  mmq_message_free(message);
  OK(mmq_len(queue, &left));
  CHECK(left == 5);
  mmq_consumer_free(end);
  mmq_consumer_free(third);
  mmq_consumer_free(oldest);
  OK(mmq_close(queue));
}

static void lease_is_over(void) {
  mmq_queue *queue = open_at("lease");
  mmq_delivery *delivery, *again;
  OK(mmq_enqueue(queue, "x", 1, NULL));
  OK(mmq_set_redelivery(queue, 1, 0, 0, 0, NULL));
  OK(mmq_receive(queue, &delivery));
  OK(mmq_receive_timeout(queue, -1, &again));
  ANSWERS(MMQ_EXPIRED, mmq_delivery_ack(delivery));
  CHECK(strstr(text(), "lease"));
  mmq_delivery_free(again);
  OK(mmq_close(queue));
}

static void *waits(void *queue) {
  mmq_message *message = NULL;
  ANSWERS(MMQ_INTERRUPTED, mmq_dequeue_timeout((mmq_queue *)queue, -1, &message));
  CHECK(message == NULL);
  CHECK(strstr(text(), "interrupted") && strstr(text(), "waiting"));
  return queue;
}

static void interrupted(void) {
  mmq_queue *queue = open_at("waiting");
  pthread_t waiter;
  CHECK(pthread_create(&waiter, NULL, waits, queue) == 0);
  /* The thread may not have begun to wait. */
  do {
    OK(mmq_interrupt(queue));
    usleep(1000);
  } while (pthread_tryjoin_np(waiter, NULL));
  OK(mmq_close(queue));
}

static void forked(void) {
  mmq_queue *queue = open_at("forked");
  mmq_message *message = NULL;
  pid_t child;
  int status = -1;
  OK(mmq_enqueue(queue, "x", 1, NULL));
  child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    ANSWERS(MMQ_FORKED, mmq_enqueue(queue, "x", 1, NULL));
    ANSWERS(MMQ_FORKED, mmq_dequeue(queue, &message));
    CHECK(strstr(text(), path_of("forked")) && strstr(text(), "has to open the queue itself"));
    OK(mmq_close(queue));
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  OK(mmq_enqueue(queue, "y", 1, NULL));
  OK(mmq_close(queue));
}

/* The system refuses every sync from now on: what a failing disk does. */
static void poisoned(void) {
#if defined(__linux__)
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_fdatasync, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_fsync, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_msync, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EIO),
  };
  struct sock_fprog program = {sizeof code / sizeof code[0], code};
  mmq_queue *queue = open_at("poisoned"), *reads, *writes;
  mmq_options *options = mmq_options_new();
  mmq_message *message;
  mmq_stats stats;
  uint64_t len = 0;
  OK(mmq_enqueue(queue, "x", 1, NULL));
  OK(mmq_options_set_flush_every_ops(options, 2));
  OK(mmq_open(path_of("poisoned-by-a-read"), options, &reads));
  OK(mmq_open(path_of("poisoned-by-a-write"), options, &writes));
  mmq_options_free(options);
  OK(mmq_enqueue(reads, "taken", 5, NULL));
  OK(mmq_enqueue(writes, "first", 5, NULL));
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    printf("SKIPPED MMQ_POISONED: no seccomp here\n");
    OK(mmq_close(queue));
    OK(mmq_close(reads));
    OK(mmq_close(writes));
    return;
  }
  ANSWERS(MMQ_IO, mmq_flush(queue));
  ANSWERS(MMQ_POISONED, mmq_enqueue(queue, "y", 1, NULL));
  CHECK(strstr(text(), "flush"));
  ANSWERS(MMQ_POISONED, mmq_flush(queue));
  stats.struct_size = sizeof stats;
  OK(mmq_read_stats(queue, &stats));
  CHECK(stats.poisoned == 1);
  OK(mmq_dequeue(queue, &message));
  mmq_message_free(message);
  ANSWERS(MMQ_POISONED, mmq_close(queue));

  /* What was taken is handed over although the flush after it failed. */
  OK(mmq_dequeue(reads, &message));
  CHECK(memcmp(mmq_message_data(message), "taken", 5) == 0);
  mmq_message_free(message);
  ANSWERS(MMQ_POISONED, mmq_enqueue(reads, "x", 1, NULL));
  ANSWERS(MMQ_POISONED, mmq_close(reads));
  /* What was put in is in the queue although the flush after it failed. */
  ANSWERS(MMQ_IO, mmq_enqueue(writes, "second", 6, NULL));
  OK(mmq_len(writes, &len));
  CHECK(len == 2);
  ANSWERS(MMQ_POISONED, mmq_enqueue(writes, "third", 5, NULL));
  ANSWERS(MMQ_POISONED, mmq_close(writes));
#else
  printf("SKIPPED MMQ_POISONED: needs seccomp\n");
#endif
}

int main(int argc, char **argv) {
  int status;
  BEGIN(argc, argv);
  for (status = -2; status < 40; status++) CHECK(strlen(mmq_status_message((mmq_status)status)) > 3);
  CHECK(MMQ_OK == 0 && MMQ_EMPTY == 1 && MMQ_BUFFER_TOO_SMALL == 2 && MMQ_TIMED_OUT == 3 && MMQ_GAP == 4);
  CHECK(MMQ_INVALID_ARGUMENT == 16 && MMQ_INVALID_OPTION == 17 && MMQ_MESSAGE_TOO_LARGE == 18 && MMQ_FULL == 19);
  CHECK(MMQ_LOCKED == 20 && MMQ_NOT_FOUND == 21 && MMQ_UNSUPPORTED_FORMAT == 22 && MMQ_IO == 23);
  CHECK(MMQ_START_OLDEST == 0 && MMQ_START_END == 1 && MMQ_START_SEQ == 2 && MMQ_INTERRUPTED == 28);
  CHECK(MMQ_POISONED == 24 && MMQ_EXPIRED == 27 && MMQ_NOT_A_QUEUE == 29 && MMQ_PANIC == 31 && MMQ_NOT_SHARED == 32);
  answers();
  gap_and_full();
  expired_and_damaged();
  refused_openings();
  path_of_any_bytes();
  later_format();
  no_queue();
  closed_and_removed();
  begins_where_it_is_asked_to();
  lease_is_over();
  interrupted();
  forked();
  poisoned();
  return 0;
}
