// One thread puts messages in, another takes them out as they come, waiting when there are none.

#include <chrono>
#include <iostream>
#include <mmq.hpp>
#include <string>
#include <thread>

#include "temporary.h"

constexpr std::uint64_t messages = 100000;

int main() {
  mmq::Queue queue(make_temporary_dir());  // a real program names a directory of its own
  std::thread producer([&queue] {
    for (std::uint64_t number = 0; number < messages; number++) queue.enqueue("message " + std::to_string(number));
  });
  std::size_t bytes = 0;
  for (std::uint64_t expected = 0; expected < messages;) {
    // Wakes as soon as a message is there; the time-out only bounds how long it sleeps.
    const auto message = queue.dequeue_timeout(std::chrono::seconds(1));
    if (!message) continue;
    if (message->seq() != expected) return 1;
    bytes += message->size();
    expected++;
  }
  producer.join();
  std::cout << messages << " messages of " << bytes << " bytes came out in order\n";
  queue.close();
  remove_temporary_dir();
}
