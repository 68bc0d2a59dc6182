// One thread puts messages in, another takes them out as they come, waiting when there are none.

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <mmq.hpp>
#include <string>
#include <thread>

#include "temporary.h"

constexpr std::uint64_t to_send = 100000;

int main() {
  mmq::Queue queue(make_temporary_dir());  // a real program names a directory of its own
  // The number of the next message, and the one behind the last that will be put in: the queue may have some already.
  const auto stats = queue.stats();
  std::uint64_t next = stats.next_seq - stats.messages;
  const std::uint64_t end = stats.next_seq + to_send;
  std::thread producer([&queue] {
    for (std::uint64_t number = 0; number < to_send; number++) queue.enqueue("message " + std::to_string(number));
  });
  // Reported once; what lies behind still comes.
  const auto tell = [&](const mmq::Gap &gap) {
    std::cerr << mmq::last_error() << '\n';
    next = gap.last + 1;
  };
  std::uint64_t messages = 0;
  std::size_t bytes = 0;
  while (next < end) {
    // Wakes as soon as a message is there; the time-out only bounds how long it sleeps.
    const auto message = mmq::past_gaps([&] { return queue.dequeue_timeout(std::chrono::seconds(1)); }, tell);
    if (!message) continue;
    if (message->seq() != next) std::exit(1);
    messages++;
    bytes += message->size();
    next++;
  }
  producer.join();
  std::cout << messages << " messages of " << bytes << " bytes came out in order\n";
  queue.close();
  remove_temporary_dir();
}
