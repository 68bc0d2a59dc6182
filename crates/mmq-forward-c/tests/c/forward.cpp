/* Forwards 1,000 messages to a real server, in C++: forward DIR ENGINE URL NOWHERE. */
#include <cstdio>
#include <cstdlib>
#include <mmq_forward.hpp>
#include <thread>

using namespace std::chrono_literals;

#define CHECK(condition)                                                                                   \
  do {                                                                                                     \
    if (!(condition)) {                                                                                    \
      std::fprintf(stderr, "%s:%d: not so: %s\n  %s\n", __FILE__, __LINE__, #condition, mmq::last_error().c_str()); \
      std::exit(1);                                                                                        \
    }                                                                                                      \
  } while (0)

int main(int argc, char **argv) {
  CHECK(argc == 5);
  const std::string dir = argv[1], url = argv[3], nowhere = argv[4];
  const bool is_nats = std::string(argv[2]) == "nats";
  std::error_code ec;
  mmq::Queue queue = mmq::Queue::open(dir + "/queue", ec);
  CHECK(!ec);
  const auto put = [&](int count) {
    while (count-- > 0) {
      const auto number = queue.stats(ec).next_seq;
      queue.enqueue("message " + std::to_string(number), ec);
      CHECK(!ec);
    }
  };
  mmq::ForwardOptions options;
  options.consumer("forward").keep(100, 1 << 20).patience(20s).on_refused(MMQ_REFUSED_STOP);
  if (is_nats) {
    options.stream("EVENTS").subject("mmq.test");
  } else {
    options.key("mmq:test");
  }

  mmq::Forwarder none;
  CHECK(!none);
  none.run(ec);
  CHECK(ec == MMQ_INVALID_ARGUMENT);
  CHECK(!mmq::Forwarder::open(queue, "http://host", options, ec) && ec == MMQ_INVALID_ARGUMENT);
  CHECK(!mmq::Forwarder::open(queue, std::string("redis://host\0x", 14), options, ec) && ec == MMQ_INVALID_ARGUMENT);
  mmq::ForwardOptions cut = options;
  cut.name(std::string("a\0b", 3));
  CHECK(!mmq::Forwarder::open(queue, url, cut, ec) && ec == MMQ_INVALID_ARGUMENT);

  {
    mmq::Forwarder waits = mmq::Forwarder::open(queue, nowhere, options, ec);
    CHECK(!ec && waits);
    waits.run(ec);
    CHECK(!ec);
    put(10);
    for (int round = 0; waits.progress(ec).text.find("refused") == std::string::npos; round++) {
      CHECK(round < 60000);
      std::this_thread::sleep_for(2ms);
    }
    CHECK(!waits.wait(0ms, ec) && !ec);
  }  // its end stops it

  mmq::Forwarder forwarder = mmq::Forwarder::open(queue, url, options, ec);
  CHECK(!ec);
  for (int round = 0; round < 9; round++) {
    forwarder.run(ec);
    CHECK(!ec);
    put(100);
    forwarder.stop(ec);
    CHECK(!ec && forwarder.wait(120s, ec) && !ec);
  }
  put(90);
  forwarder = mmq::Forwarder::open(queue, url, options, ec);  // the one before is freed
  CHECK(!ec);
#if MMQ_HPP_THROWS
  try {
    mmq::Forwarder wrong(queue, "redis://:secret@host", mmq::ForwardOptions());
    CHECK(!"refused");
  } catch (const mmq::Error &error) {
    const std::string what = error.what();
    CHECK(what.find("key") != std::string::npos && what.find("secret") == std::string::npos);
  }
  forwarder.run(MMQ_UNTIL_EMPTY);
  CHECK(forwarder.wait(mmq::forever));
  CHECK(forwarder.progress().place == 1000);
#else
  forwarder.run(MMQ_UNTIL_EMPTY, ec);
  CHECK(!ec && forwarder.wait(mmq::forever, ec) && !ec);
#endif
  const mmq::ForwardProgress progress = forwarder.progress(ec);
  CHECK(!ec && progress.state == MMQ_FORWARD_ENDED && progress.status == MMQ_OK && progress.place == 1000);
  CHECK(progress.lag == 0 && progress.text.empty());
  return 0;  // the forwarder ends before its queue
}
