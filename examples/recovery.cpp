// Nothing acknowledged is lost when the process dies: the program starts a child that puts messages in as fast as it can,
// kills it with SIGKILL in the middle, opens the queue the child left, and looks at what is there.

#include <csignal>
#include <iostream>
#include <mmq.hpp>
#include <string>
#include <sys/wait.h>

#include "temporary.h"

constexpr int rounds = 5;
constexpr unsigned long acknowledged_before_the_kill = 20000;

static std::string text_of(int round, unsigned long number) {
  return "round " + std::to_string(round) + ", message " + std::to_string(number);
}

// Puts messages in until it is killed. A number is written to the pipe only after its enqueue returned: that is the
// acknowledgement.
[[noreturn]] static void child(const std::string &dir, int round, int acknowledgements) {
  mmq::Queue queue(dir);
  for (unsigned long number = 0;; number++) {
    queue.enqueue(text_of(round, number));
    if (write(acknowledgements, &number, sizeof number) != sizeof number) _exit(1);
  }
}

// Returns how many messages the child acknowledged before it died.
static unsigned long run_and_kill_a_child(const std::string &dir, int round) {
  int ends[2];
  if (pipe(ends) != 0) std::exit(1);
  const pid_t pid = fork();
  if (pid < 0) std::exit(1);
  if (pid == 0) {
    close(ends[0]);
    child(dir, round, ends[1]);  // the queue is opened in the process that uses it: a queue does not cross a fork
  }
  close(ends[1]);
  // What the child wrote before it died stays readable in the pipe, so this reads on until the end.
  unsigned long number = 0, acknowledged = 0;
  while (read(ends[0], &number, sizeof number) == sizeof number) {
    acknowledged = number + 1;
    if (acknowledged == acknowledged_before_the_kill) kill(pid, SIGKILL);  // no handler, no destructor, no flush
  }
  close(ends[0]);
  waitpid(pid, nullptr, 0);
  return acknowledged;
}

int main() {
  const std::string dir = make_temporary_dir();
  for (int round = 0; round < rounds; round++) {
    const unsigned long acknowledged = run_and_kill_a_child(dir, round);

    // The lock died with its holder: nothing has to be cleaned up before opening.
    mmq::Queue queue(dir);
    unsigned long found = 0, lost = 0;
    // Reported once; what lies behind is looked at too.
    const auto tell = [&](const mmq::Gap &gap) {
      std::cerr << mmq::last_error() << '\n';
      lost += gap.last - gap.first + 1;
    };
    while (const auto message = mmq::past_gaps([&] { return queue.dequeue(); }, tell)) {
      if (message->view() != text_of(round, found + lost)) {
        std::cerr << "expected " << text_of(round, found + lost) << ", found " << message->view() << '\n';
        return 1;
      }
      found++;
    }
    queue.close();

    // One more than acknowledged may be there: put in, but killed before the child could say so.
    if (acknowledged < acknowledged_before_the_kill || found < acknowledged || found > acknowledged + 1 || lost > 0) {
      std::cerr << acknowledged << " messages were acknowledged, " << found << " are there, " << lost << " are lost\n";
      return 1;
    }
    std::cout << "round " << round << ": killed after " << acknowledged << " acknowledged messages; " << found
              << " are there, in order" << std::endl;
  }
  std::cout << "nothing acknowledged was lost\n";
  remove_temporary_dir();
}
