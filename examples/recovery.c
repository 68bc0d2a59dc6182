/* Nothing acknowledged is lost when the process dies: the program starts a child that puts messages in as fast as it can,
 * kills it with SIGKILL in the middle, opens the queue the child left, and looks at what is there. */
#define _DEFAULT_SOURCE
#include <mmq.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "temporary.h"

#define ROUNDS 5
#define ACKNOWLEDGED_BEFORE_THE_KILL 20000ul

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

static size_t text_of(char *text, size_t cap, int round, unsigned long number) {
  return (size_t)snprintf(text, cap, "round %d, message %lu", round, number);
}

/* Puts messages in until it is killed. A number is written to the pipe only after its mmq_enqueue returned: that is the
 * acknowledgement. */
static void child(const char *dir, int round, int acknowledgements) {
  mmq_queue *queue;
  unsigned long number;
  check(mmq_open(dir, NULL, &queue));
  for (number = 0;; number++) {
    char text[64];
    check(mmq_enqueue(queue, text, text_of(text, sizeof text, round, number), NULL));
    if (write(acknowledgements, &number, sizeof number) != sizeof number) _exit(1);
  }
}

/* Returns how many messages the child acknowledged before it died. */
static unsigned long run_and_kill_a_child(const char *dir, int round) {
  unsigned long number, acknowledged = 0;
  int ends[2];
  pid_t pid;
  if (pipe(ends) != 0 || (pid = fork()) < 0) exit(1);
  if (pid == 0) {
    close(ends[0]);
    child(dir, round, ends[1]); /* the queue is opened in the process that uses it: a queue does not cross a fork */
  }
  close(ends[1]);
  /* What the child wrote before it died stays readable in the pipe, so this reads on until the end. */
  while (read(ends[0], &number, sizeof number) == sizeof number) {
    acknowledged = number + 1;
    if (acknowledged == ACKNOWLEDGED_BEFORE_THE_KILL) kill(pid, SIGKILL); /* no handler, no destructor, no flush */
  }
  close(ends[0]);
  waitpid(pid, NULL, 0);
  return acknowledged;
}

int main(void) {
  const char *dir = make_temporary_dir();
  int round;
  for (round = 0; round < ROUNDS; round++) {
    unsigned long acknowledged = run_and_kill_a_child(dir, round), found = 0, lost = 0;
    mmq_queue *queue;
    mmq_gap gap;
    char got[64], wanted[64];
    size_t len;
    mmq_status status;

    /* The lock died with its holder: nothing has to be cleaned up before opening. */
    check(mmq_open(dir, NULL, &queue));
    while ((status = mmq_dequeue_into(queue, got, sizeof got, &len, NULL)) == MMQ_OK || status == MMQ_GAP) {
      if (status == MMQ_GAP) { /* reported once; what lies behind is looked at too */
        tell(status);
        check(mmq_last_gap(queue, &gap));
        lost += (unsigned long)(gap.last - gap.first + 1);
        continue;
      }
      if (len != text_of(wanted, sizeof wanted, round, found + lost) || memcmp(got, wanted, len) != 0) {
        fprintf(stderr, "expected \"%s\", found \"%.*s\"\n", wanted, (int)len, got);
        return 1;
      }
      found++;
    }
    if (status != MMQ_EMPTY) check(status);
    check(mmq_close(queue));

    /* One more than acknowledged may be there: put in, but killed before the child could say so. */
    if (acknowledged < ACKNOWLEDGED_BEFORE_THE_KILL || found < acknowledged || found > acknowledged + 1 || lost > 0) {
      fprintf(stderr, "%lu messages were acknowledged, %lu are there, %lu are lost\n", acknowledged, found, lost);
      return 1;
    }
    printf("round %d: killed after %lu acknowledged messages; %lu are there, in order\n", round, acknowledged, found);
    fflush(stdout);
  }
  printf("nothing acknowledged was lost\n");
  remove_temporary_dir();
  return 0;
}
