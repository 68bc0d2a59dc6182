// mmq.hpp, with and without exceptions.
#include <mmq.hpp>
#include <mmq.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <vector>

#define CHECK(condition)                                                             \
  do {                                                                               \
    if (!(condition)) {                                                              \
      std::fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #condition, mmq::last_error().c_str()); \
      std::exit(1);                                                                  \
    }                                                                                \
  } while (0)

static_assert(!std::is_copy_constructible<mmq::Queue>::value, "handles do not copy");
static_assert(std::is_nothrow_move_constructible<mmq::Queue>::value, "handles move");
static_assert(std::is_nothrow_move_assignable<mmq::Message>::value, "handles move");
static_assert(!std::is_copy_constructible<mmq::Message>::value, "handles do not copy");
static_assert(std::is_nothrow_move_constructible<mmq::Consumer>::value, "handles move");
static_assert(std::is_nothrow_move_constructible<mmq::Options>::value, "handles move");
static_assert(std::is_base_of<std::system_error, mmq::Error>::value, "errors are system errors");
static_assert(sizeof(mmq::Queue) == sizeof(void *), "a handle is a pointer");

static void with_error_codes(const std::string &dir) {
  std::error_code ec;
  mmq::Options options;
  options.arena_size(65536).max_mapped_arenas(4).max_bytes(0).min_free_bytes(0).create(true).flush_every_ops(0);
  options.flush_every(std::chrono::milliseconds(0)).max_age(std::chrono::milliseconds(0)).on_full(MMQ_REJECT);
  mmq::Queue queue = mmq::Queue::open(dir, options, ec);
  CHECK(!ec && queue);
  mmq::Queue second = mmq::Queue::open(dir, ec);
  CHECK(ec == MMQ_LOCKED && !second && ec.category() == mmq::category());
  CHECK(ec.message() == "the queue is open already" && std::strcmp(ec.category().name(), "mmq") == 0);
  CHECK(queue.enqueue("hello", ec) == 0 && !ec);
  CHECK(queue.enqueue_batch({"a", std::string("b"), std::string_view("c")}, ec) == 1 && !ec);
  CHECK(queue.enqueue_parts({"one ", "two ", {"three!", 5}}, ec) == 4 && !ec);
  CHECK(queue.len(ec) == 5 && !queue.empty(ec));
  {
    auto message = queue.peek(ec);
    CHECK(!ec && message && message->view() == "hello" && message->seq() == 0 && message->size() == 5);
    CHECK(*message == std::string_view("hello") && message->str() == "hello" && !message->empty());
    CHECK(std::string(message->begin(), message->end()) == "hello");
    CHECK(queue.dequeue(ec)->view() == "hello");
    mmq::Message moved = std::move(*message);
    CHECK(moved.view() == "hello" && message->handle() == nullptr);
#if defined(__cpp_lib_span)
    CHECK(moved.bytes().size() == 5 && moved.bytes()[0] == std::byte{'h'});
#endif
  }
  char buf[4];
  mmq::Into into = queue.dequeue_into(buf, sizeof buf, ec);
  CHECK(into && into.len == 1 && into.seq == 1 && buf[0] == 'a' && !ec);
  CHECK(queue.skip(ec) == std::optional<std::uint64_t>(2));
  CHECK(queue.dequeue_timeout(std::chrono::milliseconds(1), ec)->view() == "c");
  into = queue.peek_into(buf, sizeof buf, ec);
  CHECK(!into && into.status == MMQ_BUFFER_TOO_SMALL && into.len == 13 && !ec);
  CHECK(queue.dequeue(ec)->view() == "one two three");
  CHECK(!queue.dequeue(ec) && !ec && queue.empty(ec));
  CHECK(!queue.dequeue_timeout(std::chrono::milliseconds(1), ec) && !ec);
  queue.flush(ec);
  CHECK(!ec && queue.durable_seq(ec) == 5);
  queue.wait_durable(4, ec);
  CHECK(!ec);
  queue.wait_durable(5, ec);
  CHECK(ec == MMQ_NOT_FOUND);
  const mmq::Stats stats = queue.stats(ec);
  CHECK(!ec && stats.next_seq == 5 && stats.enqueued == 5);

  mmq::Consumer consumer = queue.consumer("name", ec);
  CHECK(!ec && consumer);
  queue.enqueue("again", ec);
  mmq::Consumer fork = consumer.fork("fork", ec);
  CHECK(!ec && fork.len(ec) >= 1);
  while (auto message = fork.dequeue(ec)) CHECK(message->seq() <= 5);
  fork.seek(5, ec);
  CHECK(!ec && fork.dequeue(ec)->view() == "again");
  CHECK(!fork.last_gap() && !queue.last_gap());
  queue.remove_consumer("fork", ec);
  CHECK(!ec);
  CHECK(!fork.peek(ec) && ec == MMQ_NOT_FOUND);
  {
    queue.set_max_in_flight(1, ec);
    CHECK(!ec && queue.ready_fd(ec) >= 0);
    auto delivery = queue.receive(ec);
    CHECK(!ec && delivery && delivery->view() == "again" && delivery->seq() == 5 && delivery->attempts() == 1);
    CHECK(!queue.receive(ec) && !ec && !queue.receive_timeout(std::chrono::milliseconds(1), ec) && !ec);
    delivery.reset();
    delivery = queue.receive_timeout(std::chrono::milliseconds(-1), ec);
    CHECK(delivery->attempts() == 2 && delivery->size() == 5 && delivery->str() == "again");
#if defined(__cpp_lib_span)
    CHECK(delivery->bytes().size() == 5);
#endif
    delivery->ack(ec);
    CHECK(!ec && delivery->handle() == nullptr && !queue.receive(ec));
    delivery->ack(ec);
    CHECK(ec == MMQ_INVALID_ARGUMENT && consumer.in_flight(ec) == 0);
  }
  {
    mmq::Queue other = mmq::Queue::open(dir + "-more", ec);
    CHECK(!ec && other.path() == dir + "-more" && other.consumers(ec).empty() && !ec);
    mmq::Consumer second = other.consumer("second", ec), first = other.consumer("first", ec);
    CHECK(first.name() == "first" && first.empty(ec) && !ec);
    CHECK((other.consumers(ec) == std::vector<std::string>{"first", "second"}) && !ec);
    for (const char *text : {"a", "b", "c", "d"}) other.enqueue(text, ec);
    mmq::Iter ahead = first.iter(ec);
    CHECK(!ec && ahead && ahead.next(ec)->view() == "a" && ahead.next(ec)->view() == "b" && !ahead.last_gap());
    std::vector<mmq::Message> batch = first.dequeue_batch(3, ec);
    CHECK(!ec && batch.size() == 3 && batch[0].view() == "a" && batch[2].view() == "c");
    CHECK(ahead.next(ec)->view() == "d" && !ahead.next(ec) && !ec);
    CHECK(first.dequeue_batch(SIZE_MAX, ec).size() == 1 && first.dequeue_batch(SIZE_MAX, ec).empty() && !ec);
    CHECK(first.dequeue_batch(0, ec).empty() && !ec);
    other.close(ec);
    CHECK(!ec && !ahead.next(ec) && ec == MMQ_CLOSED && !first.iter(ec) && ec == MMQ_CLOSED);
    CHECK(first.dequeue_batch(3, ec).empty() && ec == MMQ_CLOSED);
    CHECK(other.consumers(ec).empty() && ec == MMQ_INVALID_ARGUMENT && other.path().empty());
  }
  queue.close(ec);
  CHECK(!ec && !queue);
  CHECK(queue.enqueue("x", ec) == 0 && ec == MMQ_INVALID_ARGUMENT);
  CHECK(!consumer.dequeue(ec) && ec == MMQ_CLOSED);

  mmq::Options waits;
  waits.arena_size(4096).max_bytes(65536).on_full(MMQ_WAIT, std::chrono::milliseconds(1));
  mmq::Queue small = mmq::Queue::open(dir + "-small", waits, ec);
  while (!ec) small.enqueue(std::string_view(dir), ec);
  CHECK(ec == MMQ_FULL);

  // A name that C would see cut off at its zero byte, and so another consumer's, another directory.
  mmq::Queue third = mmq::Queue::open(dir + "-third", ec);
  mmq::Consumer whole = third.consumer("whole", ec);
  CHECK(!ec && whole);
  const std::string cut("whole\0more", 10);
  CHECK(!third.consumer(cut, ec) && ec == MMQ_INVALID_ARGUMENT);
  CHECK(!whole.fork(std::string("fork\0", 5), ec) && ec == MMQ_INVALID_ARGUMENT);
  third.remove_consumer(cut, ec);
  CHECK(ec == MMQ_INVALID_ARGUMENT && third.consumers(ec).size() == 1 && !whole.peek(ec) && !ec);
  third.close(ec);
  CHECK(!mmq::Queue::open(dir + "-third" + std::string("\0more", 5), ec) && ec == MMQ_INVALID_ARGUMENT);
  CHECK(!mmq::Queue::open(dir + "-third" + std::string("\0more", 5), waits, ec) && ec == MMQ_INVALID_ARGUMENT);

  // A chain of a temporary gives options to keep.
  auto kept = mmq::Options().arena_size(65536).max_mapped_arenas(4).flush_every_ops(0).max_bytes(0).min_free_bytes(0);
  kept = std::move(kept).flush_every(std::chrono::milliseconds(0)).max_age(std::chrono::milliseconds(0));
  const mmq::Options chained = std::move(kept).on_full(MMQ_WAIT, std::chrono::milliseconds(1)).create(false);
  CHECK(chained.handle() && chained.status() == MMQ_OK && !kept.handle());
  CHECK(!mmq::Queue::open(dir + "-nowhere", chained, ec) && ec == MMQ_NOT_FOUND);

  mmq::Options bad;
  bad.arena_size(1);
  CHECK(!mmq::Queue::open(dir, bad, ec) && ec == MMQ_INVALID_OPTION);
  CHECK(mmq::last_error().find("arena_size") != std::string::npos);
  bad.on_full(static_cast<mmq_on_full>(9)).arena_size(4096);
  CHECK(!mmq::Queue::open(dir, bad, ec) && ec == MMQ_INVALID_ARGUMENT);
}

#if MMQ_HPP_THROWS
template <class Call>
static mmq_status thrown(Call call) {
  try {
    call();
  } catch (const mmq::Error &error) {
    CHECK(std::strlen(error.what()) > 10);
    return error.status();
  }
  return MMQ_OK;
}

static void with_exceptions(const std::string &dir) {
  mmq::Options options;
  options.arena_size(4096).max_bytes(128 * 1024).on_full(MMQ_DROP_OLDEST);
  mmq::Queue queue(dir, options);
  CHECK(thrown([&] { mmq::Queue again(dir); }) == MMQ_LOCKED);
  const std::vector<char> bytes(1000);
  std::uint64_t seq = 0;
  CHECK(!queue.dequeue());  // a consumer is told of what was dropped from when it exists
  for (int round = 0; round < 300; round++) seq = queue.enqueue(bytes.data(), bytes.size());
  CHECK(seq == 299 && queue.len() < 300);
  try {
    queue.dequeue();
    CHECK(false);
  } catch (const mmq::GapError &error) {
    CHECK(error.gap().first == 0 && error.gap().cause == MMQ_GAP_DROPPED && error.code() == MMQ_GAP);
    CHECK(std::strstr(error.what(), "dropped"));
    CHECK(queue.last_gap()->last == error.gap().last);
    CHECK(queue.peek()->seq() == error.gap().last + 1);
  }
  while (queue.dequeue()) {
  }
  CHECK(queue.empty() && queue.len() == 0 && !queue.skip() && !queue.peek());
  CHECK(queue.enqueue_batch({"a", "b"}) == 300 && queue.enqueue_parts({"c", "d"}) == 302);
  char buf[2];
  CHECK(queue.peek_into(buf, sizeof buf) && queue.dequeue_into(buf, sizeof buf).seq == 300);
  CHECK(*queue.skip() == 301 && queue.dequeue_timeout(std::chrono::milliseconds(1))->view() == "cd");
  queue.flush();
  queue.wait_durable(302);
  CHECK(queue.durable_seq() == 303 && queue.stats().next_seq == 303);
  auto consumer = queue.consumer("name");
  auto fork = consumer.fork("fork");
  fork.seek(303);
  CHECK(!fork.dequeue());
  queue.enqueue("job");
  consumer.seek(303);
  consumer.set_max_in_flight(0);
  try {
    auto job = consumer.receive();
    CHECK(consumer.in_flight() == 1);
    throw job->seq();
  } catch (std::uint64_t number) {
    CHECK(number == 303 && consumer.in_flight() == 0);
  }
  consumer.receive_timeout(std::chrono::milliseconds(0))->ack();
  CHECK(!consumer.receive() && consumer.ready_fd() >= 0 && queue.ready_fd() >= 0);
  {
    queue.enqueue_batch({"x", "y", "z"});
    std::string ahead;
    for (const mmq::Message &message : queue.iter()) ahead += message.view();
    CHECK(ahead == "jobxyz" && queue.len() == 4 && !consumer.empty());
    std::vector<mmq::Message> batch = queue.dequeue_batch(10);
    CHECK(batch.size() == 4 && batch[3].view() == "z" && queue.dequeue_batch(10).empty());
    CHECK(!queue.iter().next() && queue.consumers().size() == 2 && consumer.name() == "name");
    try {
      throw mmq::error(MMQ_FULL);
    } catch (const std::system_error &error) {
      CHECK(error.code() == MMQ_FULL);
    }
  }
  queue.remove_consumer("fork");
  CHECK(thrown([&] { fork.dequeue(); }) == MMQ_NOT_FOUND);
  CHECK(thrown([&] { fork.iter().next(); }) == MMQ_NOT_FOUND);
  CHECK(thrown([&] { fork.seek(1000); }) != MMQ_OK);
  CHECK(thrown([&] { queue.consumer(""); }) == MMQ_INVALID_ARGUMENT);
  CHECK(thrown([&] { queue.remove_consumer("nobody"); }) == MMQ_NOT_FOUND);
  mmq::Queue moved = std::move(queue);
  moved.close();
  CHECK(thrown([&] { queue.enqueue("x"); }) == MMQ_INVALID_ARGUMENT);
  CHECK(thrown([&] { moved.flush(); }) == MMQ_INVALID_ARGUMENT);
}
#endif

int main(int argc, char **argv) {
  const std::string root = argc > 1 ? argv[1] : ".";
  with_error_codes(root + "/codes");
#if MMQ_HPP_THROWS
  with_exceptions(root + "/exceptions");
#endif
  return 0;
}
