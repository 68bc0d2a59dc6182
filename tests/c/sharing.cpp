// mmq::Client and mmq::ClientConsumer, with and without exceptions.
#include <mmq.hpp>

#include <cstdio>
#include <cstdlib>
#include <type_traits>

#define CHECK(condition)                                                             \
  do {                                                                               \
    if (!(condition)) {                                                              \
      std::fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #condition, mmq::last_error().c_str()); \
      std::exit(1);                                                                  \
    }                                                                                \
  } while (0)

static_assert(!std::is_copy_constructible<mmq::Client>::value, "handles do not copy");
static_assert(std::is_nothrow_move_assignable<mmq::Client>::value, "handles move");
static_assert(!std::is_copy_constructible<mmq::ClientConsumer>::value, "handles do not copy");
static_assert(sizeof(mmq::Client) == sizeof(void *), "a handle is a pointer");

static void with_error_codes(const std::string &dir) {
  using namespace std::chrono_literals;
  std::error_code ec;
  CHECK(!mmq::Client::connect(dir, ec) && ec == MMQ_NOT_FOUND);
  CHECK(!mmq::Client::connect(dir + std::string(1, '\0'), ec) && ec == MMQ_INVALID_ARGUMENT);
  auto queue = mmq::Queue::open(dir, mmq::Options().shared(true).shared_mode(0660), ec);
  auto client = mmq::Client::connect(dir, ec);
  CHECK(client && !ec && client.enqueue("first", ec) == 0 && client.enqueue("x", 1, ec) == 1);
  const mmq::Slice slices[] = {"second", std::string_view()};
  CHECK(client.enqueue_batch({"third", "fourth"}, ec) == 2 && client.enqueue_batch(slices, 2, ec) == 4 && !ec);
  client.flush(ec);
  CHECK(!ec);
  client.wait_durable(5, ec);
  CHECK(!ec && client.stats(ec).messages == 6 && !ec);
  client.wait_durable(99, ec);
  CHECK(ec == MMQ_NOT_FOUND);

  auto own = client.default_consumer(ec);
  auto workers = client.consumer("workers", ec);
  CHECK(own && workers && own.peek(ec)->view() == "first" && own.dequeue(ec)->seq() == 0);
  CHECK(own.dequeue_timeout(mmq::forever, ec)->seq() == 1 && !ec);
  CHECK(!client.consumer("", ec) && ec == MMQ_INVALID_ARGUMENT);
  CHECK(!client.consumer(std::string(1, '\0'), ec) && ec == MMQ_INVALID_ARGUMENT);
  auto job = workers.receive(ec);
  CHECK(job && job->seq() == 0 && job->attempts() == 1);
  job->reject(ec);
  CHECK(!ec && !workers.last_gap() && !workers.receive(ec) && ec == MMQ_GAP && workers.last_gap()->first == 0);
  auto jobs = workers.receive_batch(SIZE_MAX, ec);
  CHECK(jobs.size() == 5 && !ec);
  mmq::Delivery::ack_batch(std::move(jobs), ec);
  CHECK(!ec && workers.receive_batch(3, ec).empty() && !ec);
  CHECK(!workers.receive_timeout(1ms, ec) && !ec && !workers.dequeue(ec) && !ec);
  workers.seek(5, ec);
  CHECK(!ec && workers.receive_timeout(mmq::forever, ec)->seq() == 5 && !ec);
  workers.seek(99, ec);
  CHECK(ec == MMQ_NOT_FOUND);

  mmq::Client moved = std::move(client);
  CHECK(!client && client.enqueue("x", ec) == 0 && ec == MMQ_INVALID_ARGUMENT && moved);
  CHECK(!mmq::ClientConsumer().peek(ec) && ec == MMQ_INVALID_ARGUMENT);
  queue.close(ec);
  moved.enqueue("x", ec);
  CHECK(ec == MMQ_DISCONNECTED && ec == std::errc::connection_reset);
  CHECK(!mmq::Client::connect(dir, ec) && ec == MMQ_NOT_SHARED && ec == std::errc::connection_refused);
}

#if MMQ_HPP_THROWS
template <class Call>
static mmq_status thrown(Call call) {
  try {
    call();
  } catch (const mmq::Error &error) {
    return error.status();
  }
  return MMQ_OK;
}

static void with_exceptions(const std::string &dir) {
  using namespace std::chrono_literals;
  mmq::Options options;
  options.shared(true).shared_mode(0660);
  mmq::Queue queue(dir, options);
  const mmq::Client client(dir);
  CHECK(client.enqueue("first") == 0 && client.enqueue("x", 1) == 1);
  const mmq::Slice slices[] = {"second", "third"};
  CHECK(client.enqueue_batch(slices, 2) == 2 && client.enqueue_batch({"fourth"}) == 4);
  client.flush();
  client.wait_durable(4);
  CHECK(client.stats().messages == 5 && thrown([&] { client.wait_durable(99); }) == MMQ_NOT_FOUND);
  const mmq::ClientConsumer own = client.default_consumer(), workers = client.consumer("workers");
  CHECK(own.peek()->view() == "first" && own.dequeue()->seq() == 0 && own.dequeue_timeout(1s)->seq() == 1);
  CHECK(thrown([&] { client.consumer(""); }) == MMQ_INVALID_ARGUMENT);
  workers.receive()->reject();
  int gaps = 0;
  const auto count = [&](const mmq::Gap &gap) { gaps += gap.cause == MMQ_GAP_REJECTED; };
  CHECK(mmq::past_gaps([&] { return workers.receive_timeout(mmq::forever); }, count)->seq() == 1 && gaps == 1);
  auto jobs = workers.receive_batch(10);
  CHECK(jobs.size() == 4);
  mmq::Delivery::ack_batch(std::move(jobs));
  CHECK(!workers.receive_timeout(0s));
  workers.seek(4);
  CHECK(workers.dequeue()->view() == "fourth" && thrown([&] { workers.seek(99); }) == MMQ_NOT_FOUND);
  queue.close();
  CHECK(thrown([&] { client.enqueue("x"); }) == MMQ_DISCONNECTED);
  CHECK(thrown([&] { workers.receive(); }) == MMQ_DISCONNECTED);
  CHECK(thrown([&] { mmq::Client again(dir); }) == MMQ_NOT_SHARED);
}
#endif

int main(int argc, char **argv) {
  const std::string dir = argc > 1 ? argv[1] : ".";
  with_error_codes(dir + "/codes");
#if MMQ_HPP_THROWS
  with_exceptions(dir + "/exceptions");
#endif
  return 0;
}
