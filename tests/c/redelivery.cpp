// Redelivery with mmq.hpp, with and without exceptions.
#include <mmq.hpp>

#include <cstdio>
#include <cstdlib>

#define CHECK(condition)                                                             \
  do {                                                                               \
    if (!(condition)) {                                                              \
      std::fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #condition, mmq::last_error().c_str()); \
      std::exit(1);                                                                  \
    }                                                                                \
  } while (0)

/** What was handed out in vain comes later, or goes to another queue. */
int main(int argc, char **argv) {
  const std::string dir = std::string(argc > 1 ? argv[1] : ".") + "/queue";
  using namespace std::chrono;
  std::error_code ec;
  mmq::Queue failed = mmq::Queue::open(dir + "-failed", ec), queue = mmq::Queue::open(dir, ec);
  mmq::Consumer workers = queue.consumer("workers", ec);
  for (const char *text : {"a", "b", "c"}) queue.enqueue(text, ec);
  mmq::Redelivery rules = mmq::Redelivery().lease(hours(1)).backoff(nanoseconds(1), milliseconds(1)).max_attempts(2);
  workers.set_redelivery(rules.dead_letters(failed), ec);
  CHECK(!ec);
  for (std::uint32_t attempt : {1u, 2u}) {
    auto job = workers.receive_timeout(mmq::forever, ec);
    CHECK(job->view() == "a" && job->attempts() == attempt);
    job->nack_after(milliseconds(0));
    CHECK(!job->handle());
    job->nack_after(milliseconds(0));
  }
  auto letter = failed.dequeue_timeout(mmq::forever, ec);
  CHECK(letter->view() == "a" && letter->origin()->attempts == 2 && letter->origin()->seq == 0);
  auto job = workers.receive(ec);
  CHECK(job->view() == "b");
  job->nack_after(duration<double>(3600.5));
  job = workers.receive(ec);
  CHECK(job->view() == "c");
  job->extend(minutes(1), ec);
  CHECK(!ec);
  job->extend(milliseconds(-1), ec);
  CHECK(ec == MMQ_INVALID_ARGUMENT);
  job->extend(microseconds(1), ec);
  auto again = workers.receive_timeout(mmq::forever, ec);
  CHECK(!ec && again->view() == "c" && again->attempts() == 2);
  job->extend(seconds(1), ec);
  CHECK(ec == MMQ_EXPIRED && ec == std::errc::timed_out && job->handle());
  job->ack(ec);
  CHECK(ec == MMQ_EXPIRED && !job->handle());
  job->reject(ec);
  CHECK(ec == MMQ_INVALID_ARGUMENT);
  again->reject(ec);
  CHECK(!ec && !again->handle() && failed.dequeue_timeout(mmq::forever, ec)->view() == "c");
  CHECK(queue.stats(ec).rejected == 2 && queue.stats(ec).lost_rejected == 0);

  // Without a queue for them they are given up.
  queue.set_redelivery(mmq::Redelivery().max_attempts(1), ec);
  CHECK(!ec);
  queue.receive(ec)->nack();
  CHECK(!queue.receive(ec) && ec == MMQ_GAP && queue.last_gap()->cause == MMQ_GAP_REJECTED);
  CHECK(queue.stats(ec).rejected == 3 && queue.stats(ec).lost_rejected == 1);
  queue.set_redelivery(mmq::Redelivery().lease(seconds(-1)).backoff(seconds(0), seconds(0)), ec);
  CHECK(!ec);
  for (std::uint32_t attempt : {1u, 2u}) {
    job = queue.receive(ec);
    CHECK(job->view() == "b" && job->attempts() == attempt);
    job->nack();
  }

  queue.set_redelivery(mmq::Redelivery().backoff(seconds(2), seconds(1)), ec);
  CHECK(ec == MMQ_INVALID_ARGUMENT);
  queue.set_redelivery(mmq::Redelivery().dead_letters(queue), ec);
  CHECK(ec == MMQ_INVALID_ARGUMENT && mmq::last_error().find("its own") != std::string::npos);
  // No queue is not the same as none wanted.
  queue.set_redelivery(mmq::Redelivery().dead_letters(mmq::Queue()), ec);
  CHECK(ec == MMQ_INVALID_ARGUMENT && queue.receive(ec)->attempts() == 3);
#if MMQ_HPP_THROWS
  queue.set_redelivery(mmq::Redelivery().lease(milliseconds(1)));
  CHECK(queue.dequeue()->view() == "b");
  job = queue.receive();
  again = queue.receive_timeout(mmq::forever);
  CHECK(job->view() == "c" && again->view() == "c");
  for (int call = 0; call < 3; call++) {
    try {
      call == 0 ? job->extend(seconds(1)) : call == 1 ? job->reject() : workers.set_redelivery(rules.dead_letters(queue));
      CHECK(false);
    } catch (const mmq::Error &error) {
      CHECK(error.status() == (call < 2 ? MMQ_EXPIRED : MMQ_INVALID_ARGUMENT));
    }
  }
#endif
  queue.close(ec);
  CHECK(!ec);
  failed.close(ec);
  CHECK(!ec);
  return 0;
}
