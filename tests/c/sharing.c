/* A queue that other processes use through its owner: every function of clients, and the ends of both sides. */
#define _GNU_SOURCE
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *program;

static const char *text(void) {
  static char buf[5200];
  mmq_last_error(buf, sizeof buf);
  return buf;
}

static mmq_queue *owner_of(const char *name) {
  mmq_options *options = mmq_options_new();
  mmq_queue *queue = NULL;
  OK(mmq_options_set_shared(options, true));
  OK(mmq_open(path_of(name), options, &queue));
  mmq_options_free(options);
  return queue;
}

static mmq_client *client_of(const char *name) {
  mmq_client *client = NULL;
  OK(mmq_connect(path_of(name), &client));
  return client;
}

static mmq_client_consumer *consumer_of(mmq_client *client, const char *name) {
  mmq_client_consumer *consumer = NULL;
  OK(mmq_client_consumer_open(client, name, &consumer));
  return consumer;
}

static void puts_in(void) {
  mmq_queue *queue = owner_of("puts");
  mmq_client *client = client_of("puts");
  mmq_slice slices[2] = {{"second", 6}, {"third", 5}};
  mmq_message *message;
  mmq_stats stats;
  uint64_t seq = 9;
  OK(mmq_client_enqueue(client, NULL, 0, &seq));
  CHECK(seq == 0);
  OK(mmq_client_enqueue_batch(client, slices, 2, &seq));
  CHECK(seq == 1);
  OK(mmq_client_enqueue_batch(client, NULL, 0, &seq));
  CHECK(seq == 3);
  OK(mmq_client_enqueue(client, "last", 4, NULL));
  OK(mmq_client_wait_durable(client, 3));
  OK(mmq_client_flush(client));
  ANSWERS(MMQ_NOT_FOUND, mmq_client_wait_durable(client, 99));
  stats.struct_size = sizeof stats;
  OK(mmq_client_read_stats(client, &stats));
  CHECK(stats.struct_size == sizeof stats && stats.messages == 4 && stats.durable_seq == 4);
  stats.struct_size = 0;
  ANSWERS(MMQ_INVALID_ARGUMENT, mmq_client_read_stats(client, &stats));
  /* A length is checked before a byte is read. */
  ANSWERS(MMQ_MESSAGE_TOO_LARGE, mmq_client_enqueue(client, "x", 16777217, NULL));
  ANSWERS(MMQ_MESSAGE_TOO_LARGE, mmq_client_enqueue(client, "x", SIZE_MAX, NULL));
  slices[1].len = SIZE_MAX;
  ANSWERS(MMQ_MESSAGE_TOO_LARGE, mmq_client_enqueue_batch(client, slices, 2, NULL));
  ANSWERS(MMQ_INVALID_ARGUMENT, mmq_client_enqueue_batch(client, slices, SIZE_MAX, NULL));
  OK(mmq_skip(queue, NULL));
  OK(mmq_dequeue(queue, &message));
  CHECK(mmq_message_len(message) == 6 && memcmp(mmq_message_data(message), "second", 6) == 0);
  mmq_message_free(message);
  mmq_client_free(client);
  ANSWERS(MMQ_INVALID_ARGUMENT, mmq_client_enqueue(client, "x", 1, NULL));
  CHECK(strstr(text(), "client: not a live handle"));
  OK(mmq_close(queue));
}

static void takes_out(void) {
  mmq_queue *queue = owner_of("takes");
  mmq_client *client = client_of("takes");
  mmq_client_consumer *own = consumer_of(client, NULL), *workers = consumer_of(client, "workers"), *none = NULL;
  mmq_message *message;
  mmq_delivery *delivery, *batch[8];
  mmq_gap gap = {7, 7, MMQ_GAP_DAMAGED};
  size_t count = 9;
  ANSWERS(MMQ_INVALID_ARGUMENT, mmq_client_consumer_open(client, "", &none));
  ANSWERS(MMQ_INVALID_ARGUMENT, mmq_client_consumer_open(client, "\xff", &none));
  CHECK(none == NULL);
  ANSWERS(MMQ_EMPTY, mmq_client_peek(own, &message));
  ANSWERS(MMQ_TIMED_OUT, mmq_client_dequeue(own, 1, &message));
  ANSWERS(MMQ_TIMED_OUT, mmq_client_receive(workers, 0, &delivery));
  ANSWERS(MMQ_EMPTY, mmq_client_receive_batch(workers, batch, 8, &count));
  OK(mmq_client_receive_batch(workers, NULL, 0, &count));
  CHECK(count == 0);
  ANSWERS(MMQ_EMPTY, mmq_client_last_gap(workers, &gap));
  OK(mmq_enqueue(queue, "first", 5, NULL));
  OK(mmq_enqueue(queue, "second", 6, NULL));
  OK(mmq_enqueue(queue, "third", 5, NULL));

  OK(mmq_client_peek(own, &message));
  CHECK(mmq_message_seq(message) == 0 && memcmp(mmq_message_data(message), "first", 5) == 0);
  mmq_message_free(message);
  OK(mmq_client_dequeue(own, -1, &message));
  CHECK(mmq_message_seq(message) == 0 && mmq_message_len(message) == 5);
  mmq_message_free(message);

  /* The client is not needed any more; its consumers keep the connection. */
  mmq_client_free(client);
  OK(mmq_client_receive(workers, -1, &delivery));
  CHECK(mmq_delivery_seq(delivery) == 0 && mmq_delivery_attempts(delivery) == 1);
  CHECK(mmq_delivery_len(delivery) == 5 && memcmp(mmq_delivery_data(delivery), "first", 5) == 0);
  OK(mmq_delivery_nack(delivery));
  OK(mmq_client_receive(workers, -1, &delivery));
  CHECK(mmq_delivery_seq(delivery) == 0 && mmq_delivery_attempts(delivery) == 2);
  OK(mmq_delivery_ack(delivery));
  /* What is rejected, without a queue for dead letters, is a gap. */
  OK(mmq_client_receive(workers, -1, &delivery));
  OK(mmq_delivery_reject(delivery));
  ANSWERS(MMQ_GAP, mmq_client_receive(workers, -1, &delivery));
  OK(mmq_client_last_gap(workers, &gap));
  CHECK(gap.first == 1 && gap.last == 1 && gap.cause == MMQ_GAP_REJECTED);
  OK(mmq_client_seek(own, 0));
  OK(mmq_client_receive_batch(own, batch, 2, &count));
  CHECK(count == 2 && mmq_delivery_seq(batch[0]) == 0 && mmq_delivery_seq(batch[1]) == 1);
  OK(mmq_delivery_ack_batch(batch, 2));
  OK(mmq_client_receive_batch(own, batch, 8, &count));
  CHECK(count == 1);
  ANSWERS(MMQ_NOT_FOUND, mmq_client_seek(own, 99));
  mmq_client_consumer_free(own);
  ANSWERS(MMQ_INVALID_ARGUMENT, mmq_client_peek(own, &message));
  CHECK(strstr(text(), "client consumer: not a live handle"));
  OK(mmq_delivery_ack(batch[0]));
  OK(mmq_consumer_remove(queue, "workers"));
  ANSWERS(MMQ_NOT_FOUND, mmq_client_receive(workers, -1, &delivery));
  mmq_client_consumer_free(workers);
  OK(mmq_close(queue));
}

static void nobody_to_ask(void) {
  mmq_options *options = mmq_options_new();
  mmq_client *client = NULL;
  mmq_queue *queue;
  ANSWERS(MMQ_NOT_FOUND, mmq_connect(path_of("nowhere"), &client));
  OK(mmq_open(path_of("alone"), NULL, &queue));
  ANSWERS(MMQ_LOCKED, mmq_connect(path_of("alone"), &client));
  OK(mmq_close(queue));
  ANSWERS(MMQ_NOT_SHARED, mmq_connect(path_of("alone"), &client));
  CHECK(strstr(text(), "no process has it open"));
  OK(mmq_options_set_shared(options, true));
  OK(mmq_options_set_shared_mode(options, 0666));
  OK(mmq_open(path_of("alone"), options, &queue));
  client = client_of("alone");
  OK(mmq_close(queue));
  ANSWERS(MMQ_DISCONNECTED, mmq_client_enqueue(client, "x", 1, NULL));
  mmq_client_free(client);
  OK(mmq_options_set_shared_mode(options, 0777));
  ANSWERS(MMQ_INVALID_OPTION, mmq_open(path_of("alone"), options, &queue));
  CHECK(strstr(text(), "shared_mode"));
  mmq_options_free(options);
}

/* Starts this program again in that role, and waits until it is ready. */
static pid_t start(const char *role) {
  int said[2];
  char byte;
  pid_t child;
  CHECK(pipe(said) == 0);
  child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    dup2(said[1], 1);
    execl(program, program, check_root, role, (char *)NULL);
    _exit(127);
  }
  close(said[1]);
  CHECK(read(said[0], &byte, 1) == 1);
  close(said[0]);
  return child;
}

static int is_ready(void) {
  CHECK(write(1, "r", 1) == 1);
  for (;;) pause();
}

static int owner(void) {
  mmq_queue *queue = owner_of("killed");
  OK(mmq_enqueue(queue, "a job", 5, NULL));
  return is_ready();
}

static int client(void) {
  mmq_client_consumer *consumer = consumer_of(client_of("asked"), "workers");
  mmq_delivery *delivery;
  OK(mmq_client_receive(consumer, -1, &delivery));
  return is_ready();
}

static void ends(pid_t child) {
  int status;
  CHECK(kill(child, SIGKILL) == 0);
  CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void *waits(void *consumer) {
  mmq_delivery *delivery;
  ANSWERS(MMQ_DISCONNECTED, mmq_client_receive(consumer, -1, &delivery));
  return NULL;
}

/* The end of an owner is an answer to its clients, and no signal. */
static void an_owner_dies(void) {
  pid_t process = start("owner");
  mmq_client *client = client_of("killed");
  mmq_client_consumer *consumer = consumer_of(client, "workers");
  mmq_delivery *delivery, *other;
  pthread_t waiter;
  mmq_stats stats;
  int at;
  OK(mmq_client_enqueue(client, "another job", 11, NULL));
  OK(mmq_client_receive(consumer, -1, &delivery));
  OK(mmq_client_receive(consumer, -1, &other));
  CHECK(pthread_create(&waiter, NULL, waits, consumer) == 0);
  ends(process);
  CHECK(pthread_join(waiter, NULL) == 0);
  for (at = 0; at < 3; at++) ANSWERS(MMQ_DISCONNECTED, mmq_client_enqueue(client, "x", 1, NULL));
  CHECK(strstr(text(), "killed"));
  stats.struct_size = sizeof stats;
  ANSWERS(MMQ_DISCONNECTED, mmq_client_read_stats(client, &stats));
  ANSWERS(MMQ_DISCONNECTED, mmq_delivery_ack(delivery));
  OK(mmq_delivery_nack(other));
  mmq_client_consumer_free(consumer);
  mmq_client_free(client);
  ANSWERS(MMQ_NOT_SHARED, mmq_connect(path_of("killed"), &client));
}

/* A client that speaks the protocol by itself: it asks for a long message many times, and hangs up unread. */
static void asks_and_goes(void) {
  unsigned char hello[24 + 12] = {1}, peek[24] = {2};
  struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "asked/socket"};
  int at, to = socket(AF_UNIX, SOCK_STREAM, 0);
  hello[8] = 12;
  hello[16] = 1;
  memcpy(hello + 24, "mmqshare\1\0\0", 12);
  peek[16] = 20;
  CHECK(to >= 0 && connect(to, (struct sockaddr *)&address, sizeof address) == 0);
  CHECK(send(to, hello, sizeof hello, MSG_NOSIGNAL) == sizeof hello);
  for (at = 0; at < 100; at++) CHECK(send(to, peek, sizeof peek, MSG_NOSIGNAL) == sizeof peek);
  usleep(1000);
  close(to);
}

/* The end of a client is no signal to the owner, and what it had comes again. */
static void clients_die(void) {
  static const char bytes[60000];
  mmq_queue *queue = owner_of("asked");
  mmq_client *client = client_of("asked");
  mmq_client_consumer *consumer = consumer_of(client, "workers");
  mmq_delivery *delivery;
  int at;
  OK(mmq_client_enqueue(client, bytes, sizeof bytes, NULL));
  ends(start("client"));
  OK(mmq_client_receive(consumer, -1, &delivery));
  CHECK(mmq_delivery_attempts(delivery) == 2);
  CHECK(mmq_delivery_len(delivery) == sizeof bytes);
  CHECK(chdir(check_root) == 0);
  for (at = 0; at < 30; at++) asks_and_goes();
  OK(mmq_delivery_ack(delivery));
  ANSWERS(MMQ_TIMED_OUT, mmq_client_receive(consumer, 0, &delivery));
  mmq_client_consumer_free(consumer);
  mmq_client_free(client);
  OK(mmq_close(queue));
}

/* A child of a fork leaves its parent's connection alone. */
static void a_child_is_refused(void) {
  mmq_queue *queue = owner_of("forked");
  mmq_client *client = client_of("forked");
  mmq_client_consumer *consumer = consumer_of(client, NULL);
  mmq_delivery *delivery, *other;
  pid_t child;
  int status = -1;
  OK(mmq_client_enqueue(client, "x", 1, NULL));
  OK(mmq_client_receive(consumer, -1, &delivery));
  child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    ANSWERS(MMQ_FORKED, mmq_client_enqueue(client, "x", 1, NULL));
    ANSWERS(MMQ_FORKED, mmq_client_receive(consumer, -1, &other));
    mmq_delivery_free(delivery);
    mmq_client_consumer_free(consumer);
    mmq_client_free(client);
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  OK(mmq_delivery_ack(delivery));
  mmq_client_consumer_free(consumer);
  mmq_client_free(client);
  OK(mmq_close(queue));
}

int main(int argc, char **argv) {
  BEGIN(argc, argv);
  program = argv[0];
  if (argc > 2) return strcmp(argv[2], "owner") == 0 ? owner() : client();
  /* As a C program has it, whoever started it. */
  signal(SIGPIPE, SIG_DFL);
  puts_in();
  takes_out();
  nobody_to_ask();
  an_owner_dies();
  clients_die();
  a_child_is_refused();
  return 0;
}
