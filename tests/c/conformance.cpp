// Answers the calls of tests/conformance.json through mmq.hpp: reads one a line, and prints the answer.
#include <mmq.hpp>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

using Words = std::vector<std::string>;

static std::string decoded(const std::string &word) {
  const auto star = word.find('*');
  if (star != std::string::npos) return std::string(std::stoul(word), word[star + 1]);
  std::string bytes;
  for (std::size_t at = 0; at < word.size() && word != "%"; at++) {
    if (word[at] != '%') {
      bytes += word[at];
    } else {
      bytes += static_cast<char>(std::stoi(word.substr(at + 1, 2), nullptr, 16));
      at += 2;
    }
  }
  return bytes;
}

static std::string encoded(std::string_view bytes) {
  if (bytes.empty()) return "%";
  if (bytes.size() > 64 && bytes.find_first_not_of(bytes[0]) == std::string_view::npos) {
    return std::to_string(bytes.size()) + "*" + bytes[0];
  }
  std::string word;
  for (const char byte : bytes) {
    char text[4];
    std::snprintf(text, sizeof text, byte >= 'a' && byte <= 'z' ? "%c" : "%%%02x", static_cast<unsigned char>(byte));
    word += text;
  }
  return word;
}

static std::string with(const std::string &word, std::uint64_t number) { return word + " " + std::to_string(number); }

class Speaker {
 public:
  explicit Speaker(const std::string &dir) : dir_(dir) {}

  std::string answer(const Words &words) {
    try {
      const std::string &call = words[0];
      if (call == "open") {
        queue_ = mmq::Queue::open(dir_, options(words));
      } else if (call == "close") {
        queue_.close();
      } else if (call == "enqueue") {
        return with("ok", queue_.enqueue(decoded(words[1])));
      } else if (call == "enqueue_batch") {
        return enqueue_batch(words);
      } else if (call == "flush") {
        queue_.flush();
      } else if (call == "durable_seq") {
        return with("ok", queue_.durable_seq());
      } else if (call == "wait_durable") {
        queue_.wait_durable(std::stoull(words[1]));
      } else if (call == "stats") {
        return stats();
      } else if (call == "consumer") {
        consumers_[words[1]] = queue_.consumer(decoded(words[2]));
      } else if (call == "remove_consumer") {
        queue_.remove_consumer(decoded(words[1]));
      } else if (call == "seek") {
        consumers_.at(words[1]).seek(std::stoull(words[2]));
      } else if (call == "peek" || call == "dequeue" || call == "receive" || call == "redelivery") {
        return words[1] == "-" ? read(queue_, words) : read(consumers_.at(words[1]), words);
      } else {
        return settle(deliveries_.at(words[1]), words);
      }
      return "ok";
    } catch (const mmq::GapError &error) {
      const mmq::Gap gap = error.gap();
      return with(with(with("gap", gap.first), gap.last), static_cast<std::uint64_t>(gap.cause));
    } catch (const mmq::Error &error) {
      return with("error", static_cast<std::uint64_t>(error.status()));
    }
  }

 private:
  static mmq::Options options(const Words &words) {
    mmq::Options options;
    for (std::size_t at = 1; at < words.size(); at++) {
      const auto is = words[at].find('=');
      const std::string name = words[at].substr(0, is), value = words[at].substr(is + 1);
      if (name == "max_bytes") options.max_bytes(std::stoull(value));
      if (name == "arena_size") options.arena_size(std::stoull(value));
      if (name == "on_full" && value == "drop-oldest") options.on_full(MMQ_DROP_OLDEST);
      if (name == "create" && value == "false") options.create(false);
    }
    return options;
  }

  std::string enqueue_batch(const Words &words) const {
    std::vector<std::string> messages;
    for (std::size_t at = 1; at < words.size(); at++) messages.push_back(decoded(words[at]));
    const std::vector<mmq::Slice> slices(messages.begin(), messages.end());
    return with("ok", queue_.enqueue_batch(slices.data(), slices.size()));
  }

  std::string stats() const {
    const mmq::Stats s = queue_.stats();
    std::string text = "stats";
    for (const std::uint64_t figure : {s.messages, s.next_seq, s.enqueued, s.dequeued, s.consumers, s.gaps,
                                       s.lost_messages, s.refused, s.rejected}) {
      text = with(text, figure);
    }
    return text;
  }

  template <class Reader>
  std::string read(const Reader &reader, const Words &words) {
    if (words[0] == "redelivery") {
      const std::chrono::milliseconds lease(std::stoll(words[2])), delay(std::stoll(words[3]));
      mmq::Redelivery rules;
      rules.lease(lease).backoff(delay, delay).max_attempts(static_cast<std::uint32_t>(std::stoul(words[4])));
      reader.set_redelivery(rules);
      return "ok";
    }
    if (words[0] == "receive") {
      auto delivery = reader.receive_timeout(std::chrono::milliseconds(std::stoll(words[3])));
      if (!delivery) return "none";
      const std::string text = with(with("delivery", delivery->seq()), delivery->attempts());
      deliveries_[words[2]] = std::move(*delivery);
      return text + " " + encoded(deliveries_[words[2]]);
    }
    const auto message = words[0] == "peek" ? reader.peek() : reader.dequeue();
    return message ? with("message", message->seq()) + " " + encoded(*message) : "none";
  }

  static std::string settle(mmq::Delivery &delivery, const Words &words) {
    const auto ms = [&words] { return std::chrono::milliseconds(std::stoll(words[2])); };
    if (words[0] == "ack") {
      delivery.ack();
    } else if (words[0] == "nack") {
      delivery.nack();
    } else if (words[0] == "nack_after") {
      delivery.nack_after(ms());
    } else if (words[0] == "extend") {
      delivery.extend(ms());
    } else if (words[0] == "reject") {
      delivery.reject();
    } else {
      return "no such call";
    }
    return "ok";
  }

  std::string dir_;
  mmq::Queue queue_;
  std::map<std::string, mmq::Consumer> consumers_;
  std::map<std::string, mmq::Delivery> deliveries_;
};

int main(int, char **argv) {
  Speaker speaker(std::string(argv[1]) + "/queue");
  for (std::string line, word; std::getline(std::cin, line);) {
    Words words;
    for (std::istringstream rest(line); std::getline(rest, word, ' ');) words.push_back(word);
    std::cout << speaker.answer(words) << std::endl;
  }
  return 0;
}
