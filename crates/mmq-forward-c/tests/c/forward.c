/* Forwards 1,000 messages to a real server: forward DIR ENGINE URL NOWHERE. At NOWHERE nothing listens. Stops in the middle,
 * goes on, forks; the test looks at the server for what has arrived. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <mmq_forward.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define REFUSED(call) ANSWERS(MMQ_INVALID_ARGUMENT, call)
#define FORKED(call) ANSWERS(MMQ_FORKED, call)
/* Ends a hang; nothing takes nearly that long. */
#define LONG 120000

static const char *url, *nowhere;
static bool is_nats;
static mmq_queue *queue;
static uint64_t put;

static void put_some(int count) {
  while (count-- > 0) {
    char text[40];
    int len = snprintf(text, sizeof text, "message %llu", (unsigned long long)put);
    OK(mmq_enqueue(queue, text, (size_t)len, NULL));
    put++;
  }
}

static mmq_forward_options options(void) {
  mmq_forward_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  if (is_nats) {
    options.stream = "EVENTS";
    options.subject = "mmq.test";
  } else {
    options.key = "mmq:test";
  }
  return options;
}

static mmq_forwarder *made(const char *where) {
  mmq_forward_options given = options();
  mmq_forwarder *forwarder = NULL;
  OK(mmq_forwarder_new(queue, where, &given, &forwarder));
  return forwarder;
}

static mmq_forward_progress progress_of(mmq_forwarder *forwarder, char *text, size_t cap) {
  mmq_forward_progress progress;
  progress.struct_size = sizeof progress;
  OK(mmq_forwarder_read_progress(forwarder, &progress, text, cap));
  CHECK(progress.struct_size == sizeof progress);
  return progress;
}

static void pause_a_moment(void) {
  struct timespec moment = {0, 2000000};
  nanosleep(&moment, NULL);
}

/* Until the far side has acknowledged the messages below that number. */
static void wait_for_place(mmq_forwarder *forwarder, uint64_t place) {
  int round;
  for (round = 0; progress_of(forwarder, NULL, 0).place < place; round++) {
    CHECK(round < LONG / 2);
    pause_a_moment();
  }
}

static bool last_error_has(const char *words) {
  char text[1024];
  mmq_last_error(text, sizeof text);
  if (!strstr(text, words)) fprintf(stderr, "not in the text: %s\n  %s\n", words, text);
  return strstr(text, words) != NULL;
}

/* Every argument that is wrong has an answer, which names it. */
static void misuse(void) {
  mmq_forward_options given = options();
  mmq_forwarder *forwarder = NULL, *gone = NULL;
  mmq_forward_progress progress;
  char text[8] = "before";
  progress.struct_size = sizeof progress;
  REFUSED(mmq_forwarder_new(NULL, url, &given, &forwarder));
  REFUSED(mmq_forwarder_new(queue, NULL, &given, &forwarder));
  REFUSED(mmq_forwarder_new(queue, url, &given, NULL));
  REFUSED(mmq_forwarder_new((void *)queue, "http://host/", &given, &forwarder));
  CHECK(last_error_has("http://host/") && last_error_has("nats://") && last_error_has("redis://"));
  REFUSED(mmq_forwarder_new(queue, "", &given, &forwarder));
  REFUSED(mmq_forwarder_new(queue, "\xff://host", &given, &forwarder));
  CHECK(last_error_has("UTF-8"));
  REFUSED(mmq_forwarder_new(queue, url, NULL, &forwarder));
  CHECK(last_error_has(is_nats ? "stream" : "key"));
  given.struct_size = 0;
  REFUSED(mmq_forwarder_new(queue, url, &given, &forwarder));
  CHECK(last_error_has("struct_size"));
  given = options();
  if (is_nats) {
    given.key = "mmq:test";
  } else {
    given.stream = "EVENTS";
  }
  REFUSED(mmq_forwarder_new(queue, url, &given, &forwarder));
  CHECK(last_error_has(is_nats ? "no use for the option key" : "no use for the option stream"));
  given = options();
  given.password = "other";
  REFUSED(mmq_forwarder_new(queue, is_nats ? "nats://a:secret@host" : "redis://a:secret@host", &given, &forwarder));
  CHECK(last_error_has("a@host") && last_error_has("leave it out"));
  given.password = "";
  REFUSED(mmq_forwarder_new(queue, url, &given, &forwarder));
  CHECK(last_error_has("password: empty"));
  given = options();
  given.subject = is_nats ? "a b" : NULL;
  given.key = is_nats ? NULL : "{what}";
  REFUSED(mmq_forwarder_new(queue, is_nats ? "nats://a:secret@host" : "redis://a:secret@host", &given, &forwarder));
  given = options();
  given.patience_ms = -1;
  REFUSED(mmq_forwarder_new(queue, url, &given, &forwarder));
  given = options();
  given.on_refused = 7;
  REFUSED(mmq_forwarder_new(queue, url, &given, &forwarder));
  given = options();
  given.if_forgotten = -1;
  REFUSED(mmq_forwarder_new(queue, url, &given, &forwarder));
  given = options();
  given.consumer = "\xff";
  REFUSED(mmq_forwarder_new(queue, url, &given, &forwarder));
  CHECK(forwarder == NULL);

  gone = made(url);
  OK(mmq_forwarder_wait(gone, 0)); /* it never ran */
  CHECK(progress_of(gone, text, sizeof text).state == MMQ_FORWARD_BEGINNING && text[0] == 0);
  REFUSED(mmq_forwarder_run(gone, 2));
  REFUSED(mmq_forwarder_run((void *)queue, MMQ_UNTIL_STOPPED));
  REFUSED(mmq_forwarder_read_progress(gone, NULL, text, sizeof text));
  progress.struct_size = 0;
  REFUSED(mmq_forwarder_read_progress(gone, &progress, text, sizeof text));
  REFUSED(mmq_enqueue((void *)gone, "x", 1, NULL));
  mmq_forwarder_free(gone);
  REFUSED(mmq_forwarder_run(gone, MMQ_UNTIL_STOPPED));
  REFUSED(mmq_forwarder_stop(gone));
  REFUSED(mmq_forwarder_wait(gone, 0));
  REFUSED(mmq_forwarder_read_progress(gone, &progress, text, sizeof text));
  REFUSED(mmq_forwarder_run(NULL, MMQ_UNTIL_STOPPED));
  REFUSED(mmq_forwarder_stop(NULL));
  REFUSED(mmq_forwarder_wait(NULL, 0));
  REFUSED(mmq_forwarder_read_progress(NULL, &progress, text, sizeof text));
  mmq_forwarder_free(NULL);
}

/* Where nothing listens, the forwarder waits, and says for what. */
static void refused_connection(void) {
  mmq_forwarder *forwarder = made(nowhere);
  mmq_forward_progress progress;
  char text[1024] = "";
  int round;
  OK(mmq_forwarder_run(forwarder, MMQ_UNTIL_EMPTY));
  for (round = 0; !strstr(text, "refused"); round++) {
    CHECK(round < LONG / 2);
    pause_a_moment();
    progress = progress_of(forwarder, text, sizeof text);
  }
  CHECK(strstr(text, "127.0.0.1") && progress.text_len == strlen(text));
  CHECK(progress.state == MMQ_FORWARD_PAUSING && progress.status == MMQ_OK && progress.acknowledged == 0);
  progress_of(forwarder, text, 5);
  CHECK(strlen(text) == 4);
  ANSWERS(MMQ_TIMED_OUT, mmq_forwarder_wait(forwarder, 0));
  ANSWERS(MMQ_TIMED_OUT, mmq_forwarder_wait(forwarder, 5));
  REFUSED(mmq_forwarder_run(forwarder, MMQ_UNTIL_EMPTY));
  CHECK(last_error_has("runs already"));
  OK(mmq_forwarder_stop(forwarder));
  OK(mmq_forwarder_wait(forwarder, LONG));
  progress = progress_of(forwarder, text, sizeof text);
  CHECK(progress.state == MMQ_FORWARD_ENDED && progress.status == MMQ_OK);
  OK(mmq_forwarder_run(forwarder, MMQ_UNTIL_STOPPED));
  mmq_forwarder_free(forwarder); /* stops it too */
}

/* What a person must mend ends it, with a sentence, and without the password. */
static void far_side_that_refuses(void) {
  mmq_forward_options given = options();
  mmq_forwarder *forwarder = NULL;
  mmq_forward_progress progress;
  char text[1024], said[1024];
  int round;
  given.consumer = "other";
  if (is_nats) {
    given.stream = "NONE";
  } else {
    given.password = "secret";
  }
  OK(mmq_forwarder_new(queue, url, &given, &forwarder));
  for (round = 0; round < 2; round++) {
    OK(mmq_forwarder_run(forwarder, MMQ_UNTIL_STOPPED));
    ANSWERS(MMQ_FAR_SIDE, mmq_forwarder_wait(forwarder, LONG));
    mmq_last_error(said, sizeof said);
    CHECK(strlen(said) > 20 && !strstr(said, "secret"));
    if (is_nats) CHECK(last_error_has("NONE"));
    progress = progress_of(forwarder, text, sizeof text);
    CHECK(progress.state == MMQ_FORWARD_ENDED && progress.status == MMQ_FAR_SIDE);
    CHECK(strcmp(text, said) == 0);
  }
  printf("%s\n", said);
  fflush(stdout); /* before the forks */
  mmq_forwarder_free(forwarder);
  OK(mmq_consumer_remove(queue, "other"));
}

/* A child may free what its parent forwards with, and nothing else. */
static void fork_and_wait(mmq_forwarder *forwarder) {
  mmq_forward_progress progress;
  int status = -1;
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    mmq_forward_options given = options();
    mmq_forwarder *other = NULL;
    alarm(60);
    progress.struct_size = sizeof progress;
    FORKED(mmq_forwarder_run(forwarder, MMQ_UNTIL_STOPPED));
    FORKED(mmq_forwarder_stop(forwarder));
    FORKED(mmq_forwarder_wait(forwarder, -1));
    FORKED(mmq_forwarder_read_progress(forwarder, &progress, NULL, 0));
    FORKED(mmq_forwarder_new(queue, url, &given, &other));
    mmq_forwarder_free(forwarder);
    OK(mmq_close(queue));
    exit(0);
  }
  CHECK(waitpid(pid, &status, 0) == pid);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv) {
  mmq_forwarder *forwarder;
  mmq_forward_progress progress;
  char text[512];
  int round;
  CHECK(argc == 5);
  check_root = argv[1];
  is_nats = strcmp(argv[2], "nats") == 0;
  url = argv[3];
  nowhere = argv[4];
  OK(mmq_open(path_of("queue"), NULL, &queue));
  put_some(100);
  misuse();
  refused_connection();
  far_side_that_refuses();

  forwarder = made(url);
  for (round = 0; round < 10; round++) {
    OK(mmq_forwarder_run(forwarder, MMQ_UNTIL_STOPPED));
    put_some(40);
    if (round % 2) wait_for_place(forwarder, put - 40);
    if (round % 3 == 0) fork_and_wait(forwarder);
    put_some(40);
    OK(mmq_forwarder_stop(forwarder));
    OK(mmq_forwarder_wait(forwarder, LONG));
    progress = progress_of(forwarder, text, sizeof text);
    CHECK(progress.state == MMQ_FORWARD_ENDED && progress.status == MMQ_OK);
  }
  fork_and_wait(forwarder); /* it rests, and has its connection still */
  mmq_forwarder_free(forwarder);

  put_some(100);
  forwarder = made(url);
  progress = progress_of(forwarder, text, sizeof text);
  CHECK(progress.lag >= 100 && progress.place == put - progress.lag); /* it has not run yet */
  OK(mmq_forwarder_run(forwarder, MMQ_UNTIL_EMPTY));
  OK(mmq_forwarder_wait(forwarder, LONG));
  progress = progress_of(forwarder, text, sizeof text);
  CHECK(progress.sent >= 100);
  CHECK(put == 1000 && progress.place == put && progress.lag == 0);
  CHECK(progress.acknowledged_at_ms > 1600000000000u && progress.lost_there == 0 && progress.refused == 0);
  OK(mmq_forwarder_run(forwarder, MMQ_UNTIL_STOPPED));
  progress = progress_of(forwarder, text, sizeof text);
  CHECK(progress.sent == 0 && progress.place == put); /* of this run */
  OK(mmq_close(queue));
  ANSWERS(MMQ_CLOSED, mmq_forwarder_wait(forwarder, LONG));
  ANSWERS(MMQ_CLOSED, mmq_forwarder_wait(forwarder, LONG));
  mmq_forwarder_free(forwarder);
  return 0;
}
