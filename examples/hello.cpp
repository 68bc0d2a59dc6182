// The smallest program: put two messages in, close, open again, take them out.

#include <iostream>
#include <mmq.hpp>

#include "temporary.h"

int main() {
  const std::string dir = make_temporary_dir();  // a real program names a directory of its own
  {
    mmq::Queue queue(dir);
    queue.enqueue("hello");
    queue.enqueue("world");
    queue.close();
  }
  mmq::Queue queue(dir);
  // Damaged messages, for instance, are reported once; what lies behind them still comes.
  const auto tell = [](const mmq::Gap &) { std::cerr << mmq::last_error() << '\n'; };
  while (auto message = mmq::past_gaps([&] { return queue.dequeue(); }, tell))
    std::cout << message->seq() << ": " << message->view() << '\n';
  queue.close();
  remove_temporary_dir();
}
