// Dead letters say where they come from. The queue is tests/fixtures/letters.
#include <mmq.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#define CHECK(condition)                                                             \
  do {                                                                               \
    if (!(condition)) {                                                              \
      std::fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #condition, mmq::last_error().c_str()); \
      std::exit(1);                                                                  \
    }                                                                                \
  } while (0)

int main(int, char **argv) {
  mmq::Queue queue(std::string(argv[1]) + "/letters");
  mmq::Consumer workers = queue.consumer("workers");
  int letters = 0, others = 0;
  while (auto message = queue.dequeue()) {
    auto delivery = workers.receive();
    CHECK(delivery && delivery->seq() == message->seq() && delivery->view() == message->view());
    const auto origin = message->origin();
    const auto same = delivery->origin();
    CHECK(origin.has_value() == same.has_value());
    (origin ? letters : others) += 1;
    if (message->view() == "a dead letter") {
      CHECK(origin && origin->seq == 1000000007 && origin->attempts == 5 && same->seq == 1000000007);
      CHECK(std::memcmp(origin->queue_id, "the other queue.", 16) == 0);
    }
    delivery->ack();
  }
  CHECK(letters == 3 && others == 4);
  CHECK(!mmq::Message().origin() && !mmq::Delivery().origin());
  return 0;
}
