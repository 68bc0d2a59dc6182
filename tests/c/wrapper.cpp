// mmq.hpp, with and without exceptions.
#include <mmq.hpp>
#include <mmq.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
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

/** Times to wait as C gets them: below 0 is for ever there, and here no number but the largest means that. */
static void times() {
  using namespace std::chrono;
  using mmq::detail::wait_ms;
  using mmq::detail::whole_ms;
  CHECK(wait_ms(milliseconds(7)) == 7 && wait_ms(seconds(2)) == 2000 && wait_ms(duration<double>(1.5)) == 1500);
  CHECK(wait_ms(milliseconds(0)) == 0 && wait_ms(milliseconds(-1)) == 0 && wait_ms(nanoseconds(-33000000)) == 0);
  CHECK(wait_ms(hours::min()) == 0 && wait_ms(milliseconds::min()) == 0 && wait_ms(duration<double>(-1e300)) == 0);
  CHECK(wait_ms(nanoseconds(1)) == 1 && wait_ms(microseconds(1001)) == 2 && wait_ms(duration<float>(0.0001f)) == 1);
  CHECK(wait_ms(mmq::forever) == -1 && wait_ms(milliseconds::max()) == -1 && wait_ms(hours::max()) == -1);
  CHECK(wait_ms(duration<double>(1e300)) == -1 && wait_ms(duration<int, std::ratio<31556952>>(INT32_MAX)) == -1);
  CHECK(wait_ms(nanoseconds::max()) == INT64_MAX / 1000000 + 1 && whole_ms(hours::max()) == INT64_MAX);
  CHECK(wait_ms(duration<double>(std::numeric_limits<double>::quiet_NaN())) == 0);
  CHECK(wait_ms(duration<double>(std::numeric_limits<double>::infinity())) == -1);
}

/** What the system has a name for. */
static void conditions() {
  const auto is = [](mmq_status status, std::errc condition) {
    const std::error_code ec = status;
    return ec == condition && ec == status && ec.category() == mmq::category();
  };
  CHECK(is(MMQ_TIMED_OUT, std::errc::timed_out) && is(MMQ_INVALID_ARGUMENT, std::errc::invalid_argument));
  CHECK(is(MMQ_INVALID_OPTION, std::errc::invalid_argument) && is(MMQ_MESSAGE_TOO_LARGE, std::errc::message_size));
  CHECK(is(MMQ_FULL, std::errc::no_space_on_device) && is(MMQ_LOCKED, std::errc::device_or_resource_busy));
  CHECK(is(MMQ_NOT_FOUND, std::errc::no_such_file_or_directory) && is(MMQ_IO, std::errc::io_error));
  CHECK(is(MMQ_UNSUPPORTED_FORMAT, std::errc::not_supported) && is(MMQ_CLOSED, std::errc::broken_pipe));
  CHECK(is(MMQ_NOT_SHARED, std::errc::connection_refused) && is(MMQ_DISCONNECTED, std::errc::connection_reset));
  CHECK(is(MMQ_POISONED, std::errc::state_not_recoverable) && !is(MMQ_GAP, std::errc::io_error));
  CHECK(std::error_code(MMQ_GAP) != std::errc::invalid_argument && std::error_code(MMQ_PANIC) == MMQ_PANIC);
}

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
  // A deadline that has passed is not waited for; a hang would end this program.
  const auto deadline = std::chrono::steady_clock::now() - std::chrono::milliseconds(33);
  CHECK(!queue.dequeue_timeout(deadline - std::chrono::steady_clock::now(), ec) && !ec);
  CHECK(!queue.receive_timeout(deadline - std::chrono::steady_clock::now(), ec) && !ec);
  CHECK(!queue.dequeue_timeout(std::chrono::milliseconds(-1), ec) && !ec);
  queue.flush(ec);
  CHECK(!ec && queue.durable_seq(ec) == 5);
  queue.wait_durable(4, ec);
  CHECK(!ec);
  queue.wait_durable(5, ec);
  CHECK(ec == MMQ_NOT_FOUND);
  const mmq::Stats stats = queue.stats(ec);
  CHECK(!ec && stats.next_seq == 5 && stats.enqueued == 5);
  CHECK(queue.id(ec) != mmq::Id{} && !ec && queue.id(ec) == queue.id(ec));

  mmq::Consumer consumer = queue.consumer("name", ec);
  CHECK(!ec && consumer);
  queue.enqueue("again", ec);
  const mmq::ConsumerStats waiting = consumer.stats(ec);
  CHECK(!ec && waiting.messages == consumer.len(ec) && waiting.in_flight == 0);
  mmq::Consumer fork = consumer.fork("fork", ec);
  CHECK(!ec && fork.len(ec) >= 1);
  while (auto message = fork.dequeue(ec)) CHECK(message->seq() <= 5);
  fork.seek(5, ec);
  CHECK(!ec && fork.dequeue(ec)->view() == "again");
  CHECK(!fork.last_gap() && !queue.last_gap());
  queue.remove_consumer("fork", ec);
  CHECK(!ec);
  CHECK(!fork.peek(ec) && ec == MMQ_NOT_FOUND);
  CHECK(queue.consumer_at("fork", MMQ_START_SEQ, 5, ec).dequeue(ec)->view() == "again" && !ec);
  CHECK(!queue.consumer_at("end", MMQ_START_END, 0, ec).peek(ec) && !ec);
  CHECK(!queue.consumer_at("odd", MMQ_START_SEQ, 7, ec) && ec == MMQ_NOT_FOUND);
  queue.remove_consumer("fork", ec);
  queue.remove_consumer("end", ec);
  queue.interrupt(ec);
  CHECK(!ec && std::error_code(MMQ_INTERRUPTED, mmq::category()) == std::errc::interrupted);
  {
    queue.set_max_in_flight(1, ec);
    CHECK(!ec && queue.ready_fd(ec) >= 0);
    auto delivery = queue.receive(ec);
    CHECK(!ec && delivery && delivery->view() == "again" && delivery->seq() == 5 && delivery->attempts() == 1);
    CHECK(queue.in_flight(ec) == 1 && !ec);
    CHECK(!queue.receive(ec) && !ec && !queue.receive_timeout(std::chrono::milliseconds(1), ec) && !ec);
    delivery.reset();
    delivery = queue.receive_timeout(mmq::forever, ec);
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
    std::vector<mmq::Delivery> jobs = second.receive_batch(3, ec);
    CHECK(!ec && jobs.size() == 3 && jobs[2].view() == "c");
    jobs.erase(jobs.begin());
    mmq::Delivery::ack_batch(std::move(jobs), ec);
    CHECK(!ec && second.len(ec) == 2 && second.receive_batch(9, ec)[0].view() == "a");
    mmq::MessageBatch copies(2);
    for (const char *text : {"e", "ff", "a longer one"}) other.enqueue(text, ec);
    CHECK(first.dequeue_batch_into(copies, 9, ec) == 1 && !ec && copies[0] == "e" && copies.seq(0) == 4);
    CHECK(first.dequeue_batch_into(copies, 9, ec) == 1 && !ec && copies.size() == 1 && copies[0] == "ff");
    CHECK(first.dequeue_batch_into(copies, 9, ec) == 1 && copies[0] == "a longer one" && copies.seq(0) == 6);
    CHECK(first.dequeue_batch_into(copies, SIZE_MAX, ec) == 0 && !ec && copies.empty());
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
  CHECK(ec == MMQ_FULL && ec == std::errc::no_space_on_device);
  small.close(ec);
  // A negative time does not wait here either.
  waits.on_full(MMQ_WAIT, std::chrono::seconds(-1));
  small = mmq::Queue::open(dir + "-small", waits, ec);
  while (!ec) small.enqueue(std::string_view(dir), ec);
  CHECK(ec == MMQ_FULL);
  small.close(ec);

  // Work: what is not done comes again, and what was dropped is reported.
  mmq::Options drops;
  drops.arena_size(4096).max_bytes(128 * 1024).on_full(MMQ_DROP_OLDEST);
  mmq::Queue spool = mmq::Queue::open(dir + "-spool", drops, ec);
  mmq::Consumer worker = spool.consumer("worker", ec);
  CHECK(!ec);
  const std::string kilobyte(1000, 'x');
  std::uint64_t latest = 0, next = 0, lost = 0, done = 0;
  for (int round = 0; round < 300; round++) latest = spool.enqueue(kilobyte, ec);
  const auto on_gap = [&](const mmq::Gap &gap) {
    CHECK(gap.first == next && gap.cause == MMQ_GAP_DROPPED && mmq::last_error().find("dropped") != std::string::npos);
    lost += gap.last - gap.first + 1;
    next = gap.last + 1;
  };
  const auto until = [&](std::uint64_t end) {
    return [&, end](const mmq::Delivery &job) {
      CHECK(job.seq() == next && job.size() == 1000);
      if (job.seq() == end && job.attempts() == 1) return false;
      next++;
      done++;
      return true;
    };
  };
  CHECK(!worker.for_each(until(latest), on_gap, ec) && !ec && lost > 0 && worker.in_flight(ec) == 0 && next == latest);
  CHECK(worker.for_each(until(latest), on_gap, ec) && !ec && done + lost == 300 && worker.empty(ec));
  spool.close(ec);
  CHECK(!worker.for_each(until(0), on_gap, ec) && ec == MMQ_CLOSED);

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
  CHECK(!queue.dequeue());  // what is dropped is reported to a consumer from when it exists
  for (int round = 0; round < 300; round++) seq = queue.enqueue(bytes.data(), bytes.size());
  CHECK(seq == 299 && queue.len() < 300);
  try {
    queue.dequeue();
    CHECK(false);
  } catch (const mmq::GapError &error) {
    CHECK(error.gap().first == 0 && error.gap().cause == MMQ_GAP_DROPPED && error.code() == MMQ_GAP);
    CHECK(error.what() == mmq::last_error() && std::strstr(error.what(), "dropped") && !std::strstr(error.what(), "missing"));
    CHECK(queue.last_gap()->last == error.gap().last);
    CHECK(queue.peek()->seq() == error.gap().last + 1);
  }
  {
    // Behind a gap, by calls that take and by one that looks ahead.
    for (int round = 0; round < 300; round++) queue.enqueue(bytes.data(), bytes.size());
    std::uint64_t next = queue.last_gap()->last + 1, gaps = 0;
    const auto on_gap = [&](const mmq::Gap &gap) {
      CHECK(gap.first == next && std::strstr(mmq::last_error().c_str(), "dropped"));
      next = gap.last + 1;
      gaps++;
    };
    auto ahead = queue.iter();
    CHECK(mmq::past_gaps([&] { return ahead.next(); }, on_gap)->seq() == next && gaps == 1);
    next = queue.last_gap()->last + 1;
    while (const auto message = mmq::past_gaps([&] { return queue.dequeue(); }, on_gap)) CHECK(message->seq() == next++);
    CHECK(gaps == 2 && next == 600);

    // Work that throws gives its message back; the next call goes on with it.
    queue.enqueue_batch({"one", "two", "three"});
    std::string done;
    bool fails = true;
    const auto work = [&](const mmq::Delivery &job) {
      if (job.view() == "two" && std::exchange(fails, false)) throw std::string("on purpose");
      done += job.view();
    };
    try {
      queue.for_each(work, on_gap);
      CHECK(false);
    } catch (const std::string &text) {
      CHECK(text == "on purpose" && done == "one" && queue.len() == 2);
    }
    queue.for_each(work, on_gap);
    CHECK(done == "onetwothree" && queue.empty() && gaps == 2);
  }
  CHECK(queue.empty() && queue.len() == 0 && !queue.skip() && !queue.peek());
  CHECK(queue.enqueue_batch({"a", "b"}) == 603 && queue.enqueue_parts({"c", "d"}) == 605);
  char buf[2];
  CHECK(queue.peek_into(buf, sizeof buf) && queue.dequeue_into(buf, sizeof buf).seq == 603);
  CHECK(*queue.skip() == 604 && queue.dequeue_timeout(std::chrono::milliseconds(1))->view() == "cd");
  queue.flush();
  queue.wait_durable(605);
  CHECK(queue.durable_seq() == 606 && queue.stats().next_seq == 606);
  auto consumer = queue.consumer("name");
  auto fork = consumer.fork("fork");
  fork.seek(606);
  CHECK(!fork.dequeue());
  CHECK(fork.stats().next_seq == 606 && fork.stats().messages == 0 && queue.id() != mmq::Id{});
  queue.enqueue("job");
  consumer.seek(606);
  consumer.set_max_in_flight(0);
  try {
    auto job = consumer.receive();
    CHECK(consumer.in_flight() == 1);
    throw job->seq();
  } catch (std::uint64_t number) {
    CHECK(number == 606 && consumer.in_flight() == 0);
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
    mmq::MessageBatch copies;
    queue.enqueue_batch({"1", "2"});
    while (queue.dequeue_batch_into(copies, 100) != 0)
      CHECK(copies.size() == 2 && copies[1] == "2" && copies.seq(1) == copies.seq(0) + 1);
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
  try {
    consumer.seek(10000);
  } catch (const mmq::Error &error) {
    CHECK(std::string(error.what()).find("queue " + dir + " holds no message 10000: it holds ") == 0);
    CHECK(error.what() == mmq::last_error());
  }
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
  times();
  conditions();
  with_error_codes(root + "/codes");
#if MMQ_HPP_THROWS
  with_exceptions(root + "/exceptions");
#endif
  return 0;
}
