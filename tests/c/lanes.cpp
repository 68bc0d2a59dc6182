// Lanes with mmq.hpp, with and without exceptions.
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

static_assert(std::is_nothrow_move_constructible_v<mmq::Lanes> && std::is_nothrow_move_assignable_v<mmq::Lanes>, "moves");
static_assert(!std::is_copy_constructible_v<mmq::Lanes> && std::is_copy_constructible_v<mmq::LaneOptions>, "does not copy");

/** The delivery is that message, and is acknowledged. */
static bool is(std::optional<mmq::Delivery> delivery, std::string_view text, bool is_backlog) {
  std::error_code ec;
  if (!delivery || delivery->view() != text || delivery->is_backlog() != is_backlog) return false;
  delivery->ack(ec);
  return !ec;
}

/** After an outage the newest messages go first, and what waited goes beside them. */
int main(int argc, char **argv) {
  const std::string dir = std::string(argc > 1 ? argv[1] : ".") + "/queue";
  using namespace std::chrono;
  std::error_code ec;
  mmq::Queue queue = mmq::Queue::open(dir, ec);
  mmq::Consumer link = queue.consumer("link", ec);
  mmq::Lanes lanes = link.lanes(mmq::LaneOptions().fresh_messages(2).share(1, 1), ec);
  CHECK(!ec && lanes && lanes.handle());
  for (const char *text : {"a", "b", "c", "d", "e"}) queue.enqueue(text, ec);
  CHECK(is(lanes.receive(ec), "a", true));
  CHECK(lanes.backlog(ec).size() == 1 && lanes.backlog(ec)[0].first == 1 && lanes.backlog(ec)[0].end == 5);
  queue.enqueue_batch({"f", "g"}, ec);
  CHECK(is(lanes.receive(ec), "f", false) && is(lanes.receive(ec), "b", true));
  CHECK(is(lanes.receive_fresh(ec), "g", false) && !lanes.receive_fresh(ec) && !ec);
  CHECK(!lanes.receive_fresh_timeout(milliseconds(-1), ec) && !ec);
  CHECK(is(lanes.receive_timeout(mmq::forever, ec), "c", true) && is(lanes.receive_backlog(ec), "d", true));
  CHECK(is(lanes.receive_backlog_timeout(hours(1), ec), "e", true));
  CHECK(lanes.backlog(ec).empty() && !lanes.receive(ec) && !ec);

  // By itself it leaves nothing behind now, and the stretch that was left last comes first.
  mmq::Lanes others = link.lanes(mmq::LaneOptions().order(MMQ_NEWEST_STRETCH_FIRST).backlog_rate(1000), ec);
  queue.enqueue_batch({"h", "i", "j"}, ec);
  CHECK(is(lanes.receive(ec), "h", false));
  mmq::Stretch left = others.jump(ec);
  CHECK(!ec && left.first == 8 && left.end == 10);
  queue.enqueue_batch({"k", "l"}, ec);
  CHECK(is(lanes.receive(ec), "k", false));
  left = lanes.jump(ec);
  CHECK(left.first == 11 && left.end == 12 && others.jump(ec).first == 12 && others.backlog(ec).size() == 2);
  CHECK(is(lanes.receive_backlog_timeout(mmq::forever, ec), "l", true));
  CHECK(is(lanes.receive_timeout(mmq::forever, ec), "i", true));

  // The defaults; and the handle moves.
  others = link.lanes(ec);
  CHECK(!ec && is(others.receive(ec), "j", true) && !others.receive(ec) && !ec);
  const mmq::Lanes moved = std::move(others);
  others = mmq::Lanes();
  CHECK(!others && moved && !others.receive(ec) && ec == MMQ_INVALID_ARGUMENT);
  others.jump(ec);
  CHECK(ec == MMQ_INVALID_ARGUMENT && others.backlog(ec).empty() && ec == MMQ_INVALID_ARGUMENT && !others.last_gap());

  // A gap comes where its message would have.
  queue.enqueue_batch({"m", "n", "o"}, ec);
  moved.receive(ec)->reject(ec);
  CHECK(!moved.last_gap() && !moved.receive(ec) && ec == MMQ_GAP && moved.last_gap()->first == 12);
  CHECK(moved.last_gap()->cause == MMQ_GAP_REJECTED && is(moved.receive(ec), "n", false) && !ec);

  // Refused; the lanes stay as they are.
  link.lanes(mmq::LaneOptions().fresh_messages(0), ec);
  CHECK(ec == MMQ_INVALID_ARGUMENT && mmq::last_error().find("fresh_within") != std::string::npos);
  CHECK(!link.lanes(mmq::LaneOptions().fresh_within(seconds(0)), ec) && ec == MMQ_INVALID_ARGUMENT);
  link.lanes(mmq::LaneOptions().fresh_within(seconds(-1)), ec);
  CHECK(ec == MMQ_INVALID_ARGUMENT);
  link.lanes(mmq::LaneOptions().order(static_cast<mmq_backlog_order>(2)), ec);
  CHECK(ec == MMQ_INVALID_ARGUMENT && mmq::Consumer().lanes(ec).handle() == nullptr && ec == MMQ_INVALID_ARGUMENT);
  for (auto rules : {mmq::LaneOptions().fresh_messages(UINT64_MAX), mmq::LaneOptions().fresh_within(hours::max()),
                     mmq::LaneOptions().fresh_within(duration<double>(1e-9)), mmq::LaneOptions().share(0, 0)}) {
    CHECK(link.lanes(rules, ec) && !ec);
  }
#if MMQ_HPP_THROWS
  mmq::Lanes thrown = link.lanes();
  thrown = link.lanes(mmq::LaneOptions().fresh_within(hours(1)).share(0, 1));
  CHECK(is(thrown.receive_timeout(mmq::forever), "o", false) && !thrown.receive() && !thrown.receive_fresh());
  queue.enqueue_batch({"p", "q", "r"});
  CHECK(is(thrown.receive_fresh(), "p", false) && thrown.jump().end == 18 && thrown.backlog().size() == 1);
  CHECK(is(thrown.receive_backlog(), "q", true) && is(thrown.receive_backlog_timeout(seconds(1)), "r", true));
  CHECK(!thrown.receive_fresh_timeout(seconds(0)) && thrown.backlog().empty());
  queue.enqueue_batch({"s", "t"});
  thrown.receive()->reject();
  std::uint64_t lost = 0;
  const auto met = mmq::past_gaps([&] { return thrown.receive(); }, [&](const mmq::Gap &gap) { lost += gap.first; });
  CHECK(met && met->view() == "t" && lost == 18);
  for (int call = 0; call < 4; call++) {
    try {
      call == 0   ? (void)link.lanes(mmq::LaneOptions().fresh_messages(0))
      : call == 1 ? (void)others.receive()
      : call == 2 ? (void)others.jump()
                  : (void)others.backlog();
      CHECK(false);
    } catch (const mmq::Error &error) {
      CHECK(error.status() == MMQ_INVALID_ARGUMENT);
    }
  }
#endif
  queue.close(ec);
  CHECK(!ec && !moved.receive(ec) && ec == MMQ_CLOSED);
  moved.backlog(ec);
  CHECK(ec == MMQ_CLOSED);
  return 0;
}
