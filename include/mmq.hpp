/*
 * mmq for C++17: handles that free themselves, std::string_view for bytes, std::error_code or
 * exceptions for errors. Header only. Every call is one call of mmq.h, which is the manual: it says
 * what each function promises.
 *
 *     #include <mmq.hpp>
 *     #include <iostream>
 *
 *     int main() {
 *       mmq::Queue queue("spool");
 *       queue.enqueue("hello");
 *       const auto tell = [](const mmq::Gap &) { std::cerr << mmq::last_error() << '\n'; };
 *       while (auto message = mmq::past_gaps([&] { return queue.dequeue(); }, tell))
 *         std::cout << message->view() << '\n';
 *       queue.close();
 *     }
 *
 * Errors. Every call on a handle exists twice (constructors throw; Queue::open does not). One
 * throws mmq::Error (derived from std::system_error). The other takes a std::error_code& as its
 * last argument, is noexcept, and returns an empty value when it fails. (Where it has to
 * allocate a string or a vector, want of memory ends the program.) With -fno-exceptions only the
 * latter exist. Empty and timed out are no errors but empty optionals. Codes compare with
 * mmq_status (ec == MMQ_FULL) and, where there is one, with std::errc (ec ==
 * std::errc::no_space_on_device).
 *
 * Gaps. Messages that will never come are reported once, where they would have come: the throwing
 * calls throw mmq::GapError, the others set MMQ_GAP, and last_gap() has the numbers. Either way the
 * next read goes on behind them. A loop that ends there leaves the rest unread. past_gaps and
 * for_each go on, and so does, with error codes, while ((message = queue.dequeue(ec)) || ec ==
 * MMQ_GAP).
 *
 * Times to wait are any std::chrono durations, rounded up to milliseconds. With zero or a negative
 * one a call does not wait, so deadline - now() may be passed after the deadline too. mmq::forever,
 * and every time too long for the 64 bits of C, is for ever.
 *
 * Handles move and do not copy. A moved-from or default-constructed handle may be destroyed and
 * assigned to; calls on it fail with MMQ_INVALID_ARGUMENT. So do calls with a directory or a name
 * that has a zero byte in it. Threads: as in mmq.h.
 */
#ifndef MMQ_HPP
#define MMQ_HPP

#if __cplusplus < 201703L && (!defined(_MSVC_LANG) || _MSVC_LANG < 201703L)
#error "mmq.hpp needs C++17 or later (-std=c++17); mmq.h does with C++11 or C99"
#else

#include "mmq.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>
#if __has_include(<version>)
#include <version>
#endif
#if defined(__cpp_lib_span)
#include <span>
#endif

#if defined(__cpp_exceptions)
#define MMQ_HPP_THROWS 1
#else
#define MMQ_HPP_THROWS 0
#endif

namespace mmq {

namespace detail {

class Category final : public std::error_category {
 public:
  const char *name() const noexcept override { return "mmq"; }
  std::string message(int status) const override { return mmq_status_message(static_cast<mmq_status>(status)); }
  /** The std::errc that means the same as the status, where there is one. */
  std::error_condition default_error_condition(int status) const noexcept override {
    switch (status) {
      case MMQ_TIMED_OUT: return std::errc::timed_out;
      case MMQ_INVALID_ARGUMENT: return std::errc::invalid_argument;
      case MMQ_INVALID_OPTION: return std::errc::invalid_argument;
      case MMQ_MESSAGE_TOO_LARGE: return std::errc::message_size;
      case MMQ_FULL: return std::errc::no_space_on_device;
      case MMQ_LOCKED: return std::errc::device_or_resource_busy;
      case MMQ_NOT_FOUND: return std::errc::no_such_file_or_directory;
      case MMQ_UNSUPPORTED_FORMAT: return std::errc::not_supported;
      case MMQ_IO: return std::errc::io_error;
      case MMQ_POISONED: return std::errc::state_not_recoverable;
      case MMQ_CLOSED: return std::errc::broken_pipe;
      case MMQ_EXPIRED: return std::errc::timed_out;
      case MMQ_INTERRUPTED: return std::errc::interrupted;
      case MMQ_NOT_SHARED: return std::errc::connection_refused;
      case MMQ_DISCONNECTED: return std::errc::connection_reset;
      default: return std::error_condition(status, *this);
    }
  }
};

template <class T, void (*Free)(T *)>
struct Deleter {
  void operator()(T *handle) const noexcept { Free(handle); }
};

/**
 * Text for C. C would cut text with a zero byte in it to another, shorter name, so it gets NULL,
 * which it refuses.
 */
inline const char *c_text(const std::string &text) noexcept {
  return text.find('\0') == std::string::npos ? text.c_str() : nullptr;
}

inline void close_queue(mmq_queue *queue) noexcept { mmq_close(queue); }

}  // namespace detail

/** The category of mmq's error codes; their values are mmq_status. */
inline const std::error_category &category() noexcept {
  static const detail::Category instance;
  return instance;
}

/** This thread's last error text: mmq_last_error. */
inline std::string last_error() {
  std::string text(mmq_last_error(nullptr, 0), '\0');
  if (!text.empty()) mmq_last_error(&text[0], text.size() + 1);
  return text;
}

}  // namespace mmq

/** Lets a std::error_code be made from an mmq_status and compared with one. */
inline std::error_code make_error_code(mmq_status status) noexcept {
  return std::error_code(static_cast<int>(status), mmq::category());
}
namespace std {
template <>
struct is_error_code_enum<mmq_status> : true_type {};
}  // namespace std

namespace mmq {

using Gap = mmq_gap;
using Stats = mmq_stats;
using ConsumerStats = mmq_consumer_stats;
using Origin = mmq_origin;
/** A queue's id. */
using Id = std::array<std::uint8_t, 16>;
using Inspection = mmq_inspection;
/** Numbers of messages that were left behind: those from first on that are below end. */
using Stretch = mmq_stretch;

/** Waits for ever. */
inline constexpr std::chrono::milliseconds forever = std::chrono::milliseconds::max();

/** Thrown by the throwing calls. code() is the status, what() mmq_last_error's text. */
class Error : public std::system_error {
 public:
  explicit Error(mmq_status status) : std::system_error(make_error_code(status)), text_(text_of(status)) {}
  const char *what() const noexcept override { return text_.what(); }
  mmq_status status() const noexcept { return static_cast<mmq_status>(code().value()); }

 private:
  static std::string text_of(mmq_status status) {
    const std::string text = last_error();
    return text.empty() ? mmq_status_message(status) : text;
  }

  std::runtime_error text_;  // copies without throwing, as an exception must
};
using error = Error;

/** Thrown once for messages that will never come, by the read that comes to them. */
class GapError : public Error {
 public:
  explicit GapError(const Gap &gap) : Error(MMQ_GAP), gap_(gap) {}
  const Gap &gap() const noexcept { return gap_; }

 private:
  Gap gap_;
};

namespace detail {

/**
 * The time in milliseconds, rounded up: 0 for a negative time, INT64_MAX for one that is too long.
 */
template <class Rep, class Period>
std::int64_t whole_ms(std::chrono::duration<Rep, Period> time) noexcept {
  using std::chrono::milliseconds;
  if (!(time > time.zero())) return 0;
  if (std::chrono::duration<double, std::milli>(time).count() >= 9e18) return INT64_MAX;
  const auto ms = std::chrono::duration_cast<milliseconds>(time);
  return ms < time ? ms.count() + 1 : ms.count();
}

/** What the function of C says of the handle. */
template <class T>
std::optional<Origin> origin_of(mmq_status (*function)(const T *, mmq_origin *), const T *handle) noexcept {
  Origin origin{};
  origin.struct_size = sizeof origin;
  if (function(handle, &origin) != MMQ_OK) return std::nullopt;
  return origin;
}

/** A time to wait for C, where a number below 0 means for ever. */
template <class Rep, class Period>
std::int64_t wait_ms(std::chrono::duration<Rep, Period> time) noexcept {
  const std::int64_t ms = whole_ms(time);
  return ms == INT64_MAX ? -1 : ms;
}

inline void report(mmq_status status, std::error_code &ec) noexcept {
  if (status == MMQ_OK) {
    ec.clear();
  } else {
    ec = make_error_code(status);
  }
}

#if MMQ_HPP_THROWS
inline void check(mmq_status status) {
  if (status != MMQ_OK) throw Error(status);
}
#endif

}  // namespace detail

/** Bytes lent to a call: text, or a pointer and a length. */
struct Slice : mmq_slice {
  Slice(std::string_view bytes) noexcept : mmq_slice{bytes.data(), bytes.size()} {}
  Slice(const char *text) noexcept : Slice(std::string_view(text)) {}
  Slice(const std::string &text) noexcept : Slice(std::string_view(text)) {}
  Slice(const void *bytes, std::size_t count) noexcept : mmq_slice{bytes, count} {}
};
static_assert(sizeof(Slice) == sizeof(mmq_slice), "an array of Slice is an array of mmq_slice");

/**
 * A message. Its bytes stay where they are until it is destroyed, whatever is done to the queue. A
 * child of a fork may destroy it, but must not read it.
 */
class Message {
 public:
  using Raw = mmq_message;
  Message() noexcept = default;
  explicit Message(mmq_message *handle) noexcept : handle_(handle) {}

  const char *data() const noexcept { return reinterpret_cast<const char *>(mmq_message_data(handle_.get())); }
  std::size_t size() const noexcept { return mmq_message_len(handle_.get()); }
  bool empty() const noexcept { return size() == 0; }
  std::uint64_t seq() const noexcept { return mmq_message_seq(handle_.get()); }
  /** Where it comes from; nothing when it is no dead letter. */
  std::optional<Origin> origin() const noexcept { return detail::origin_of(mmq_message_origin, handle_.get()); }
  std::string_view view() const noexcept { return std::string_view(data(), size()); }
  operator std::string_view() const noexcept { return view(); }
  std::string str() const { return std::string(view()); }
  const char *begin() const noexcept { return data(); }
  const char *end() const noexcept { return data() + size(); }
#if defined(__cpp_lib_span)
  std::span<const std::byte> bytes() const noexcept {
    return std::as_bytes(std::span<const char>(data(), size()));
  }
#endif

  mmq_message *handle() const noexcept { return handle_.get(); }
  mmq_message *release() noexcept { return handle_.release(); }

 private:
  std::unique_ptr<mmq_message, detail::Deleter<mmq_message, mmq_message_free>> handle_;
};

/**
 * A message handed out for work that may fail. Destroying it unacknowledged, also by an exception,
 * gives it back.
 */
class Delivery {
 public:
  using Raw = mmq_delivery;
  Delivery() noexcept = default;
  explicit Delivery(mmq_delivery *handle) noexcept : handle_(handle) {}

  const char *data() const noexcept { return reinterpret_cast<const char *>(mmq_delivery_data(handle_.get())); }
  std::size_t size() const noexcept { return mmq_delivery_len(handle_.get()); }
  std::uint64_t seq() const noexcept { return mmq_delivery_seq(handle_.get()); }
  std::uint32_t attempts() const noexcept { return mmq_delivery_attempts(handle_.get()); }
  /** Whether it comes from the backlog of lanes. */
  bool is_backlog() const noexcept { return mmq_delivery_is_backlog(handle_.get()); }
  /** Where it comes from; nothing when it is no dead letter. */
  std::optional<Origin> origin() const noexcept { return detail::origin_of(mmq_delivery_origin, handle_.get()); }
  std::string_view view() const noexcept { return std::string_view(data(), size()); }
  operator std::string_view() const noexcept { return view(); }
  std::string str() const { return std::string(view()); }
#if defined(__cpp_lib_span)
  std::span<const std::byte> bytes() const noexcept {
    return std::as_bytes(std::span<const char>(data(), size()));
  }
#endif

  /**
   * Acknowledges: the work is done, and the message does not come again. Frees the handle, also
   * with an error.
   */
  void ack(std::error_code &ec) noexcept { detail::report(mmq_delivery_ack(handle_.release()), ec); }
  /** Acknowledges many in one step, and frees them. */
  static void ack_batch(std::vector<Delivery> deliveries, std::error_code &ec) noexcept {
    detail::report(acked(deliveries), ec);
  }
  /** Gives the message back: the work was not done, and the message comes again. */
  void nack() noexcept { handle_.reset(); }
  /** Gives the message back, to come again after a delay; zero or less: at once. */
  template <class Rep, class Period>
  void nack_after(std::chrono::duration<Rep, Period> delay) noexcept {
    if (handle_) mmq_delivery_nack_after(handle_.release(), detail::whole_ms(delay));
  }
  /** Has the lease end that long from now; MMQ_EXPIRED when it has ended. */
  template <class Rep, class Period>
  void extend(std::chrono::duration<Rep, Period> by, std::error_code &ec) const noexcept {
    detail::report(mmq_delivery_extend(handle_.get(), detail::whole_ms(by)), ec);
  }
  /**
   * Rejects: the message comes no more, and goes to the dead letters or is given up. Frees the
   * handle, also with an error.
   */
  void reject(std::error_code &ec) noexcept { detail::report(mmq_delivery_reject(handle_.release()), ec); }
#if MMQ_HPP_THROWS
  void ack() { detail::check(mmq_delivery_ack(handle_.release())); }
  static void ack_batch(std::vector<Delivery> deliveries) { detail::check(acked(deliveries)); }
  template <class Rep, class Period>
  void extend(std::chrono::duration<Rep, Period> by) const {
    detail::check(mmq_delivery_extend(handle_.get(), detail::whole_ms(by)));
  }
  void reject() { detail::check(mmq_delivery_reject(handle_.release())); }
#endif

  mmq_delivery *handle() const noexcept { return handle_.get(); }
  mmq_delivery *release() noexcept { return handle_.release(); }

 private:
  static mmq_status acked(std::vector<Delivery> &deliveries) {
    std::vector<mmq_delivery *> raw;
    raw.reserve(deliveries.size());
    for (Delivery &delivery : deliveries) raw.push_back(delivery.release());
    return mmq_delivery_ack_batch(raw.data(), raw.size());
  }
  std::unique_ptr<mmq_delivery, detail::Deleter<mmq_delivery, mmq_delivery_free>> handle_;
};

class Iter;
class Queue;

namespace detail {
template <class Calls>
class Reader;
}

/**
 * When messages come again that were handed out in vain, and when they come no more:
 * queue.set_redelivery(mmq::Redelivery().lease(60s).backoff(100ms, 60s).max_attempts(5).dead_letters(failed)).
 * Without any of it they come again at once and for ever.
 */
class Redelivery {
 public:
  /** How long a delivery may take before it goes back by itself; zero or less: as long as it likes. */
  template <class Rep, class Period>
  Redelivery &lease(std::chrono::duration<Rep, Period> time) noexcept {
    lease_ms_ = detail::whole_ms(time);
    return *this;
  }
  /** The delay after the first attempt, twice as long after each further one, up to max; zero or less: none. */
  template <class Rep, class Period, class MaxRep, class MaxPeriod>
  Redelivery &backoff(std::chrono::duration<Rep, Period> first, std::chrono::duration<MaxRep, MaxPeriod> max) noexcept {
    first_delay_ms_ = detail::whole_ms(first);
    max_delay_ms_ = detail::whole_ms(max);
    return *this;
  }
  /** After so many attempts in vain a message is rejected; 0: never. */
  Redelivery &max_attempts(std::uint32_t attempts) noexcept {
    max_attempts_ = attempts;
    return *this;
  }
  /** Where rejected messages go; otherwise they are given up. That queue must be closed after the one they come from. */
  Redelivery &dead_letters(const Queue &queue) noexcept;

 private:
  template <class Calls>
  friend class detail::Reader;

  std::int64_t lease_ms_ = 0;
  std::int64_t first_delay_ms_ = 0;
  std::int64_t max_delay_ms_ = 0;
  std::uint32_t max_attempts_ = 0;
  bool has_dead_letters_ = false;
  mmq_queue *dead_letters_ = nullptr;
};

/**
 * How lanes are read: consumer.lanes(mmq::LaneOptions().fresh_within(30s).share(2, 1).backlog_rate(10000)).
 * Without any of it messages are fresh until Lanes::jump, the lanes share 4 to 1, and the backlog
 * comes as fast as it is read, from the oldest message on.
 */
class LaneOptions {
 public:
  /** Messages are fresh for so long, and at most an eighth longer. */
  template <class Rep, class Period>
  LaneOptions &fresh_within(std::chrono::duration<Rep, Period> age) noexcept {
    return fresh(MMQ_FRESH_AGE, detail::whole_ms(age));
  }
  /** The last so many messages are fresh. */
  LaneOptions &fresh_messages(std::uint64_t messages) noexcept {
    return fresh(MMQ_FRESH_MESSAGES, messages < INT64_MAX ? static_cast<std::int64_t>(messages) : INT64_MAX);
  }
  /** While both lanes have messages: so many of the fresh one, then so many of the backlog; 0 and 0: 4 and 1. */
  LaneOptions &share(std::uint32_t fresh, std::uint32_t backlog) noexcept {
    options_.share_fresh = fresh;
    options_.share_backlog = backlog;
    return *this;
  }
  /** The most messages of the backlog in a second; 0: no limit. A message held back makes ready_fd readable all the same. */
  LaneOptions &backlog_rate(std::uint64_t messages) noexcept {
    options_.backlog_rate = messages;
    return *this;
  }
  /** In which order what was left behind is read. */
  LaneOptions &order(mmq_backlog_order order) noexcept {
    options_.order = order;
    return *this;
  }

 private:
  friend class Consumer;

  LaneOptions &fresh(mmq_fresh how, std::int64_t within) noexcept {
    options_.fresh = how;
    options_.fresh_within = within;
    return *this;
  }

  mmq_lane_options options_{};
};

/**
 * The answer of peek_into and dequeue_into: MMQ_OK (true), MMQ_EMPTY, or MMQ_BUFFER_TOO_SMALL. With
 * the last one too, len is the length of the message.
 */
struct Into {
  mmq_status status = MMQ_EMPTY;
  std::size_t len = 0;
  std::uint64_t seq = 0;
  explicit operator bool() const noexcept { return status == MMQ_OK; }
};

/**
 * Messages that dequeue_batch_into copied, one behind the other in memory that the next call uses
 * again.
 */
class MessageBatch {
 public:
  /** Room for so many bytes; a longer message makes more. */
  explicit MessageBatch(std::size_t bytes = 64 << 10) : bytes_(bytes) {}

  std::size_t size() const noexcept { return messages_.empty() ? 0 : count_; }
  bool empty() const noexcept { return size() == 0; }
  /** The bytes of a message, counted from 0, until the next call that fills the batch. */
  std::string_view operator[](std::size_t at) const noexcept {
    return {static_cast<const char *>(messages_[at].data), messages_[at].len};
  }
  /** Its sequence number. */
  std::uint64_t seq(std::size_t at) const noexcept { return messages_[at].seq; }

 private:
  template <class Calls>
  friend class detail::Reader;

  template <class Call, class Handle>
  mmq_status fill(Call call, Handle *handle, std::size_t max) {
    count_ = 0;
    // Messages are longer than nothing, as a rule: so many fill the memory.
    if (messages_.size() < max) messages_.resize(std::min<std::size_t>(max, 1024));
    for (;;) {
      std::size_t len = 0;
      const std::size_t most = std::min(max, messages_.size());
      const mmq_status status = call(handle, bytes_.data(), bytes_.size(), messages_.data(), most, &count_, &len);
      if (status != MMQ_BUFFER_TOO_SMALL) return status;
      bytes_.resize(len);
    }
  }

  std::vector<char> bytes_;
  std::vector<mmq_copied_message> messages_;
  std::size_t count_ = 0;
};

/**
 * How a queue is opened: Options().arena_size(4 << 20).flush_every_ops(1). Opening the queue
 * refuses an invalid value.
 */
class Options {
 public:
  Options() noexcept : handle_(mmq_options_new()) {}

  Options &arena_size(std::uint64_t bytes) & noexcept { return note(mmq_options_set_arena_size(handle(), bytes)); }
  /** 0: no cap. */
  Options &max_mapped_arenas(std::uint32_t arenas) & noexcept {
    return note(mmq_options_set_max_mapped_arenas(handle(), arenas));
  }
  /** 0: off. */
  Options &flush_every_ops(std::uint64_t operations) & noexcept {
    return note(mmq_options_set_flush_every_ops(handle(), operations));
  }
  /** 0 or less: off. */
  template <class Rep, class Period>
  Options &flush_every(std::chrono::duration<Rep, Period> period) & noexcept {
    return note(mmq_options_set_flush_every_ms(handle(), static_cast<std::uint64_t>(detail::whole_ms(period))));
  }
  /** 0: no limit. */
  Options &max_bytes(std::uint64_t bytes) & noexcept { return note(mmq_options_set_max_bytes(handle(), bytes)); }
  Options &min_free_bytes(std::uint64_t bytes) & noexcept {
    return note(mmq_options_set_min_free_bytes(handle(), bytes));
  }
  /** Without a time MMQ_WAIT waits for ever. */
  Options &on_full(mmq_on_full policy) & noexcept { return on_full(policy, forever); }
  /** With MMQ_WAIT, how long to wait; zero or less: not at all. */
  template <class Rep, class Period>
  Options &on_full(mmq_on_full policy, std::chrono::duration<Rep, Period> wait) & noexcept {
    return note(mmq_options_set_on_full(handle(), policy, detail::wait_ms(wait)));
  }
  /** 0 or less: no limit. */
  template <class Rep, class Period>
  Options &max_age(std::chrono::duration<Rep, Period> age) & noexcept {
    return note(mmq_options_set_max_age_ms(handle(), static_cast<std::uint64_t>(detail::whole_ms(age))));
  }
  /** The permission bits of files, in octal: 0640. 0: as the umask says, or as the files that are there. */
  Options &mode(std::uint32_t bits) & noexcept { return note(mmq_options_set_mode(handle(), bits)); }
  Options &create(bool create) & noexcept { return note(mmq_options_set_create(handle(), create)); }
  /** Whether other processes may use the queue through this one, by mmq::Client. */
  Options &shared(bool shared) & noexcept { return note(mmq_options_set_shared(handle(), shared)); }
  /** The permission bits of the socket, in octal: 0660 lets the group use a shared queue. */
  Options &shared_mode(std::uint32_t bits) & noexcept { return note(mmq_options_set_shared_mode(handle(), bits)); }

  // The same for a temporary, so that auto options = Options().arena_size(4 << 20) moves.
  Options &&arena_size(std::uint64_t bytes) && noexcept { return std::move(arena_size(bytes)); }
  Options &&max_mapped_arenas(std::uint32_t arenas) && noexcept { return std::move(max_mapped_arenas(arenas)); }
  Options &&flush_every_ops(std::uint64_t operations) && noexcept { return std::move(flush_every_ops(operations)); }
  template <class Rep, class Period>
  Options &&flush_every(std::chrono::duration<Rep, Period> period) && noexcept {
    return std::move(flush_every(period));
  }
  Options &&max_bytes(std::uint64_t bytes) && noexcept { return std::move(max_bytes(bytes)); }
  Options &&min_free_bytes(std::uint64_t bytes) && noexcept { return std::move(min_free_bytes(bytes)); }
  Options &&on_full(mmq_on_full policy) && noexcept { return std::move(on_full(policy)); }
  template <class Rep, class Period>
  Options &&on_full(mmq_on_full policy, std::chrono::duration<Rep, Period> wait) && noexcept {
    return std::move(on_full(policy, wait));
  }
  template <class Rep, class Period>
  Options &&max_age(std::chrono::duration<Rep, Period> age) && noexcept {
    return std::move(max_age(age));
  }
  Options &&mode(std::uint32_t bits) && noexcept { return std::move(mode(bits)); }
  Options &&create(bool wanted) && noexcept { return std::move(create(wanted)); }
  Options &&shared(bool wanted) && noexcept { return std::move(shared(wanted)); }
  Options &&shared_mode(std::uint32_t bits) && noexcept { return std::move(shared_mode(bits)); }

  mmq_options *handle() const noexcept { return handle_.get(); }
  /** The first setter's failure, or MMQ_OK. */
  mmq_status status() const noexcept { return status_; }

 private:
  Options &note(mmq_status status) noexcept {
    if (status_ == MMQ_OK) status_ = status;
    return *this;
  }

  std::unique_ptr<mmq_options, detail::Deleter<mmq_options, mmq_options_free>> handle_;
  mmq_status status_ = handle_ ? MMQ_OK : MMQ_PANIC;
};

namespace detail {

struct QueueCalls {
  using Handle = mmq_queue;
  static constexpr auto free = close_queue;
  static constexpr auto peek = mmq_peek;
  static constexpr auto dequeue = mmq_dequeue;
  static constexpr auto dequeue_timeout = mmq_dequeue_timeout;
  static constexpr auto dequeue_batch = mmq_dequeue_batch;
  static constexpr auto dequeue_batch_into = mmq_dequeue_batch_into;
  static constexpr auto iter_open = mmq_iter_open;
  static constexpr auto is_empty = mmq_is_empty;
  static constexpr auto peek_into = mmq_peek_into;
  static constexpr auto dequeue_into = mmq_dequeue_into;
  static constexpr auto skip = mmq_skip;
  static constexpr auto len = mmq_len;
  static constexpr auto last_gap = mmq_last_gap;
  static constexpr auto receive = mmq_receive;
  static constexpr auto receive_batch = mmq_receive_batch;
  static constexpr auto receive_timeout = mmq_receive_timeout;
  static constexpr auto set_max_in_flight = mmq_set_max_in_flight;
  static constexpr auto set_redelivery = mmq_set_redelivery;
  static constexpr auto in_flight = mmq_in_flight;
  static constexpr auto ready_fd = mmq_ready_fd;
};

struct ConsumerCalls {
  using Handle = mmq_consumer;
  static constexpr auto free = mmq_consumer_free;
  static constexpr auto peek = mmq_consumer_peek;
  static constexpr auto dequeue = mmq_consumer_dequeue;
  static constexpr auto dequeue_timeout = mmq_consumer_dequeue_timeout;
  static constexpr auto dequeue_batch = mmq_consumer_dequeue_batch;
  static constexpr auto dequeue_batch_into = mmq_consumer_dequeue_batch_into;
  static constexpr auto iter_open = mmq_consumer_iter_open;
  static constexpr auto is_empty = mmq_consumer_is_empty;
  static constexpr auto peek_into = mmq_consumer_peek_into;
  static constexpr auto dequeue_into = mmq_consumer_dequeue_into;
  static constexpr auto skip = mmq_consumer_skip;
  static constexpr auto len = mmq_consumer_len;
  static constexpr auto last_gap = mmq_consumer_last_gap;
  static constexpr auto receive = mmq_consumer_receive;
  static constexpr auto receive_batch = mmq_consumer_receive_batch;
  static constexpr auto receive_timeout = mmq_consumer_receive_timeout;
  static constexpr auto set_max_in_flight = mmq_consumer_set_max_in_flight;
  static constexpr auto set_redelivery = mmq_consumer_set_redelivery;
  static constexpr auto in_flight = mmq_consumer_in_flight;
  static constexpr auto ready_fd = mmq_consumer_ready_fd;
};

inline bool is_answer(mmq_status status) noexcept {
  return status == MMQ_OK || status == MMQ_EMPTY || status == MMQ_TIMED_OUT || status == MMQ_BUFFER_TOO_SMALL;
}
inline void report_unless_answer(mmq_status status, std::error_code &ec) noexcept {
  report(is_answer(status) ? MMQ_OK : status, ec);
}
template <class Value, class Raw>
std::optional<Value> value_or_error(mmq_status status, Raw *raw, std::error_code &ec) noexcept {
  report_unless_answer(status, ec);
  if (status != MMQ_OK) return std::nullopt;
  return std::optional<Value>(std::in_place, raw);
}
#if MMQ_HPP_THROWS
/** Throws the error or the gap that a read through from has met. */
template <class From>
void throw_unless_answer(mmq_status status, const From &from) {
  if (is_answer(status)) return;
  if (status == MMQ_GAP) {
    if (const auto gap = from.last_gap()) throw GapError(*gap);
  }
  throw Error(status);
}
#endif

/** The calls that a queue and a consumer have in common. */
template <class Calls>
class Reader {
 public:
  using Handle = typename Calls::Handle;

  /** The next message, which stays in the queue; nullopt when there is none. */
  std::optional<Message> peek(std::error_code &ec) const noexcept {
    mmq_message *message = nullptr;
    const mmq_status status = Calls::peek(handle(), &message);
    return value_or_error<Message>(status, message, ec);
  }
  /** Takes the next message; nullopt when there is none. */
  std::optional<Message> dequeue(std::error_code &ec) const noexcept {
    mmq_message *message = nullptr;
    const mmq_status status = Calls::dequeue(handle(), &message);
    return value_or_error<Message>(status, message, ec);
  }
  /**
   * Takes the next message, and waits for it up to timeout (mmq::forever: for ever); nullopt when
   * none came.
   */
  template <class Rep, class Period>
  std::optional<Message> dequeue_timeout(std::chrono::duration<Rep, Period> timeout, std::error_code &ec) const noexcept {
    mmq_message *message = nullptr;
    const mmq_status status = Calls::dequeue_timeout(handle(), wait_ms(timeout), &message);
    return value_or_error<Message>(status, message, ec);
  }
  /** Copies the next message, which stays in the queue. */
  Into peek_into(void *buf, std::size_t cap, std::error_code &ec) const noexcept {
    Into into;
    into.status = Calls::peek_into(handle(), buf, cap, &into.len, &into.seq);
    report_unless_answer(into.status, ec);
    return into;
  }
  /** Takes and copies the next message. A message that does not fit is not taken. */
  Into dequeue_into(void *buf, std::size_t cap, std::error_code &ec) const noexcept {
    Into into;
    into.status = Calls::dequeue_into(handle(), buf, cap, &into.len, &into.seq);
    report_unless_answer(into.status, ec);
    return into;
  }
  /**
   * Takes the next message without delivering it and returns its number; nullopt when there is
   * none.
   */
  std::optional<std::uint64_t> skip(std::error_code &ec) const noexcept {
    std::uint64_t seq = 0;
    const mmq_status status = Calls::skip(handle(), &seq);
    report_unless_answer(status, ec);
    return status == MMQ_OK ? std::optional<std::uint64_t>(seq) : std::nullopt;
  }
  /** Takes up to max messages, as many as there are, without waiting. */
  std::vector<Message> dequeue_batch(std::size_t max, std::error_code &ec) const noexcept {
    std::vector<Message> messages;
    report_unless_answer(some(Calls::dequeue_batch, max, messages), ec);
    return messages;
  }
  /**
   * Takes up to max messages, without waiting, and copies them to the batch, which has at most 1024
   * at a time. Returns how many.
   */
  std::size_t dequeue_batch_into(MessageBatch &batch, std::size_t max, std::error_code &ec) const noexcept {
    report_unless_answer(batch.fill(Calls::dequeue_batch_into, handle(), max), ec);
    return batch.size();
  }
  /** Looks ahead from the next message on and consumes nothing. */
  Iter iter(std::error_code &ec) const noexcept;
  /** Whether no message waits. */
  bool empty(std::error_code &ec) const noexcept {
    bool empty = true;
    report(Calls::is_empty(handle(), &empty), ec);
    return empty;
  }
  /** How many messages wait. */
  std::uint64_t len(std::error_code &ec) const noexcept {
    std::uint64_t len = 0;
    report(Calls::len(handle(), &len), ec);
    return len;
  }
  /** Hands out the next message, to be acknowledged; nullopt when there is none. */
  std::optional<Delivery> receive(std::error_code &ec) const noexcept {
    mmq_delivery *delivery = nullptr;
    const mmq_status status = Calls::receive(handle(), &delivery);
    return value_or_error<Delivery>(status, delivery, ec);
  }
  /** Hands out up to max messages in one step, without waiting; Delivery::ack_batch acknowledges them. */
  std::vector<Delivery> receive_batch(std::size_t max, std::error_code &ec) const noexcept {
    std::vector<Delivery> deliveries;
    report_unless_answer(some(Calls::receive_batch, max, deliveries), ec);
    return deliveries;
  }
  /** As receive, but waits for a message up to timeout (mmq::forever: for ever). */
  template <class Rep, class Period>
  std::optional<Delivery> receive_timeout(std::chrono::duration<Rep, Period> timeout, std::error_code &ec) const noexcept {
    mmq_delivery *delivery = nullptr;
    const mmq_status status = Calls::receive_timeout(handle(), wait_ms(timeout), &delivery);
    return value_or_error<Delivery>(status, delivery, ec);
  }
  /**
   * At-least-once work until no message is left to hand out. bool work(const Delivery &) gets each
   * message. When it returns true the message is acknowledged; when it returns false the message
   * goes back to the front of the line, and the call ends. void on_gap(const Gap &) gets each gap.
   * Returns true when no message is left; false when work returned false (ec is clear) or after an
   * error.
   */
  template <class Work, class OnGap>
  bool for_each(Work &&work, OnGap &&on_gap, std::error_code &ec) const {
    for (;;) {
      std::optional<Delivery> delivery = receive(ec);
      if (delivery) {
        if (!work(static_cast<const Delivery &>(*delivery))) return false;
        delivery->ack(ec);
        if (ec) return false;
      } else if (ec == make_error_code(MMQ_GAP)) {
        if (const auto gap = last_gap()) on_gap(*gap);
      } else {
        return !ec;
      }
    }
  }
  /** 0: no limit. */
  void set_max_in_flight(std::uint32_t messages, std::error_code &ec) const noexcept {
    report(Calls::set_max_in_flight(handle(), messages), ec);
  }
  /** Sets when messages come again that were handed out and not acknowledged. */
  void set_redelivery(const Redelivery &redelivery, std::error_code &ec) const noexcept {
    report(redelivers(redelivery), ec);
  }
  /** How many messages are in flight: received, neither acknowledged nor given back. */
  std::uint64_t in_flight(std::error_code &ec) const noexcept {
    std::uint64_t count = 0;
    report(Calls::in_flight(handle(), &count), ec);
    return count;
  }
  /** A descriptor that is readable while a message or an unreported gap waits; -1 after an error. */
  int ready_fd(std::error_code &ec) const noexcept {
    int descriptor = -1;
    report(Calls::ready_fd(handle(), &descriptor), ec);
    return descriptor;
  }
  /** The gap of the latest MMQ_GAP; nullopt when there was none. */
  std::optional<Gap> last_gap() const noexcept {
    Gap gap{};
    return Calls::last_gap(handle(), &gap) == MMQ_OK ? std::optional<Gap>(gap) : std::nullopt;
  }

#if MMQ_HPP_THROWS
  std::optional<Message> peek() const {
    mmq_message *message = nullptr;
    const mmq_status status = Calls::peek(handle(), &message);
    return value_or_throw<Message>(status, message);
  }
  std::optional<Message> dequeue() const {
    mmq_message *message = nullptr;
    const mmq_status status = Calls::dequeue(handle(), &message);
    return value_or_throw<Message>(status, message);
  }
  template <class Rep, class Period>
  std::optional<Message> dequeue_timeout(std::chrono::duration<Rep, Period> timeout) const {
    mmq_message *message = nullptr;
    const mmq_status status = Calls::dequeue_timeout(handle(), wait_ms(timeout), &message);
    return value_or_throw<Message>(status, message);
  }
  Into peek_into(void *buf, std::size_t cap) const {
    Into into;
    into.status = Calls::peek_into(handle(), buf, cap, &into.len, &into.seq);
    throw_unless_answer(into.status, *this);
    return into;
  }
  Into dequeue_into(void *buf, std::size_t cap) const {
    Into into;
    into.status = Calls::dequeue_into(handle(), buf, cap, &into.len, &into.seq);
    throw_unless_answer(into.status, *this);
    return into;
  }
  std::optional<std::uint64_t> skip() const {
    std::uint64_t seq = 0;
    const mmq_status status = Calls::skip(handle(), &seq);
    throw_unless_answer(status, *this);
    return status == MMQ_OK ? std::optional<std::uint64_t>(seq) : std::nullopt;
  }
  std::vector<Message> dequeue_batch(std::size_t max) const {
    std::vector<Message> messages;
    throw_unless_answer(some(Calls::dequeue_batch, max, messages), *this);
    return messages;
  }
  std::size_t dequeue_batch_into(MessageBatch &batch, std::size_t max) const {
    throw_unless_answer(batch.fill(Calls::dequeue_batch_into, handle(), max), *this);
    return batch.size();
  }
  Iter iter() const;
  bool empty() const {
    bool empty = true;
    check(Calls::is_empty(handle(), &empty));
    return empty;
  }
  std::uint64_t len() const {
    std::uint64_t len = 0;
    check(Calls::len(handle(), &len));
    return len;
  }
  std::optional<Delivery> receive() const {
    mmq_delivery *delivery = nullptr;
    const mmq_status status = Calls::receive(handle(), &delivery);
    return value_or_throw<Delivery>(status, delivery);
  }
  std::vector<Delivery> receive_batch(std::size_t max) const {
    std::vector<Delivery> deliveries;
    throw_unless_answer(some(Calls::receive_batch, max, deliveries), *this);
    return deliveries;
  }
  template <class Rep, class Period>
  std::optional<Delivery> receive_timeout(std::chrono::duration<Rep, Period> timeout) const {
    mmq_delivery *delivery = nullptr;
    const mmq_status status = Calls::receive_timeout(handle(), wait_ms(timeout), &delivery);
    return value_or_throw<Delivery>(status, delivery);
  }
  /**
   * At-least-once work until no message is left to hand out. work(const Delivery &) gets each
   * message, which is acknowledged when work has returned. When work throws, its message goes back
   * to the front of the line, and the exception leaves the call. void on_gap(const Gap &) gets each
   * gap (last_error() is its text).
   */
  template <class Work, class OnGap>
  void for_each(Work &&work, OnGap &&on_gap) const {
    for (;;) {
      mmq_delivery *raw = nullptr;
      const mmq_status status = Calls::receive(handle(), &raw);
      if (status == MMQ_EMPTY) return;
      if (status == MMQ_GAP) {
        if (const auto gap = last_gap()) on_gap(*gap);
        continue;
      }
      check(status);
      Delivery delivery(raw);
      work(static_cast<const Delivery &>(delivery));
      delivery.ack();
    }
  }
  void set_max_in_flight(std::uint32_t messages) const { check(Calls::set_max_in_flight(handle(), messages)); }
  void set_redelivery(const Redelivery &redelivery) const { check(redelivers(redelivery)); }
  std::uint64_t in_flight() const {
    std::uint64_t count = 0;
    check(Calls::in_flight(handle(), &count));
    return count;
  }
  int ready_fd() const {
    int descriptor = -1;
    check(Calls::ready_fd(handle(), &descriptor));
    return descriptor;
  }
#endif

  Handle *handle() const noexcept { return handle_.get(); }
  Handle *release() noexcept { return handle_.release(); }
  explicit operator bool() const noexcept { return handle_ != nullptr; }

 protected:
  Reader() noexcept = default;
  explicit Reader(Handle *handle) noexcept : handle_(handle) {}

 private:
  /**
   * Takes as many messages as there are now; max may be any number. Allocates before it takes: a
   * message that was taken must not be lost for want of memory.
   */
  template <class Call, class Value>
  mmq_status some(Call call, std::size_t max, std::vector<Value> &values) const {
    std::uint64_t len = 0;
    const mmq_status status = Calls::len(handle(), &len);
    if (status != MMQ_OK) return status;
    if (len == 0) len = 1;
    std::vector<typename Value::Raw *> raw(len < max ? static_cast<std::size_t>(len) : max);
    values.reserve(raw.size());
    std::size_t count = 0;
    const mmq_status taken = call(handle(), raw.data(), raw.size(), &count);
    for (std::size_t at = 0; at < count; at++) values.emplace_back(raw[at]);
    return taken;
  }
  mmq_status redelivers(const Redelivery &rules) const noexcept {
    // For C, no queue would be none wanted: it refuses no handle instead.
    const bool is_moved = rules.has_dead_letters_ && !rules.dead_letters_;
    return Calls::set_redelivery(is_moved ? nullptr : handle(), rules.lease_ms_, rules.first_delay_ms_,
                                 rules.max_delay_ms_, rules.max_attempts_, rules.dead_letters_);
  }
#if MMQ_HPP_THROWS
  template <class Value, class Raw>
  std::optional<Value> value_or_throw(mmq_status status, Raw *raw) const {
    throw_unless_answer(status, *this);
    if (status != MMQ_OK) return std::nullopt;
    return std::optional<Value>(std::in_place, raw);
  }
#endif

  std::unique_ptr<Handle, Deleter<Handle, Calls::free>> handle_;
};

}  // namespace detail

#if MMQ_HPP_THROWS
/**
 * Reads past gaps: calls read() until it throws no GapError, and hands each gap to
 * on_gap(const Gap &), in which last_error() is the gap's text. read may be any call that reads:
 *
 *     while (auto message = mmq::past_gaps([&] { return queue.dequeue(); }, tell)) ...
 */
template <class Read, class OnGap>
auto past_gaps(Read &&read, OnGap &&on_gap) -> decltype(read()) {
  for (;;) {
    Gap gap{};
    try {
      return read();
    } catch (const GapError &met) {
      gap = met.gap();
    }
    on_gap(static_cast<const Gap &>(gap));
  }
}
#endif

/**
 * A look ahead, which consumes nothing. Call next() until it returns nullopt, or write
 *
 *     for (const mmq::Message &message : queue.iter()) ...
 *
 * A gap ends that loop by an exception; past_gaps([&] { return iter.next(); }, tell) goes on.
 */
class Iter {
 public:
  Iter() noexcept = default;
  explicit Iter(mmq_iter *handle) noexcept : handle_(handle) {}

  /** The next message ahead; nullopt at the end, where new messages may come later. */
  std::optional<Message> next(std::error_code &ec) noexcept {
    mmq_message *message = nullptr;
    const mmq_status status = mmq_iter_next(handle(), &message);
    return detail::value_or_error<Message>(status, message, ec);
  }
  /** The gap of the latest MMQ_GAP; nullopt when there was none. */
  std::optional<Gap> last_gap() const noexcept {
    Gap gap{};
    return mmq_iter_last_gap(handle(), &gap) == MMQ_OK ? std::optional<Gap>(gap) : std::nullopt;
  }
#if MMQ_HPP_THROWS
  std::optional<Message> next() {
    mmq_message *message = nullptr;
    const mmq_status status = mmq_iter_next(handle(), &message);
    detail::throw_unless_answer(status, *this);
    return status == MMQ_OK ? std::optional<Message>(std::in_place, message) : std::nullopt;
  }

  struct End {};
  /** The iterator of a range-based for. Incrementing it throws as next() does. */
  class Place {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Message;
    using difference_type = std::ptrdiff_t;
    using pointer = const Message *;
    using reference = const Message &;
    explicit Place(Iter &iter) : iter_(&iter), message_(iter.next()) {}
    const Message &operator*() const noexcept { return *message_; }
    const Message *operator->() const noexcept { return &*message_; }
    Place &operator++() {
      message_ = iter_->next();
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator!=(End) const noexcept { return message_.has_value(); }
    bool operator==(End) const noexcept { return !message_.has_value(); }

   private:
    Iter *iter_;
    std::optional<Message> message_;
  };
  Place begin() { return Place(*this); }
  End end() const noexcept { return {}; }
#endif

  mmq_iter *handle() const noexcept { return handle_.get(); }
  mmq_iter *release() noexcept { return handle_.release(); }
  explicit operator bool() const noexcept { return handle_ != nullptr; }

 private:
  std::unique_ptr<mmq_iter, detail::Deleter<mmq_iter, mmq_iter_free>> handle_;
};

template <class Calls>
Iter detail::Reader<Calls>::iter(std::error_code &ec) const noexcept {
  mmq_iter *iter = nullptr;
  report(Calls::iter_open(handle(), &iter), ec);
  return Iter(iter);
}
#if MMQ_HPP_THROWS
template <class Calls>
Iter detail::Reader<Calls>::iter() const {
  mmq_iter *iter = nullptr;
  check(Calls::iter_open(handle(), &iter));
  return Iter(iter);
}
#endif

/**
 * Two lanes over one consumer: fresh messages as they come, and beside them the backlog. The handle
 * may outlive the consumer's and the queue's, and answers MMQ_CLOSED then.
 */
class Lanes {
 public:
  Lanes() noexcept = default;
  explicit Lanes(mmq_lanes *handle) noexcept : handle_(handle) {}

  /** Hands out the next message of both lanes, as they share; nullopt when there is none. */
  std::optional<Delivery> receive(std::error_code &ec) const noexcept { return handed(mmq_lanes_receive, ec); }
  /** Hands out the next fresh message; nullopt when there is none. */
  std::optional<Delivery> receive_fresh(std::error_code &ec) const noexcept {
    return handed(mmq_lanes_receive_fresh, ec);
  }
  /** Hands out the next message of the backlog; nullopt when there is none, or its rate allows none now. */
  std::optional<Delivery> receive_backlog(std::error_code &ec) const noexcept {
    return handed(mmq_lanes_receive_backlog, ec);
  }
  /** As receive, but waits for a message up to timeout (mmq::forever: for ever). */
  template <class Rep, class Period>
  std::optional<Delivery> receive_timeout(std::chrono::duration<Rep, Period> timeout, std::error_code &ec) const noexcept {
    return handed(mmq_lanes_receive_timeout, detail::wait_ms(timeout), ec);
  }
  /** As receive_fresh, but waits. */
  template <class Rep, class Period>
  std::optional<Delivery> receive_fresh_timeout(std::chrono::duration<Rep, Period> timeout,
                                                std::error_code &ec) const noexcept {
    return handed(mmq_lanes_receive_fresh_timeout, detail::wait_ms(timeout), ec);
  }
  /** As receive_backlog, but waits. */
  template <class Rep, class Period>
  std::optional<Delivery> receive_backlog_timeout(std::chrono::duration<Rep, Period> timeout,
                                                  std::error_code &ec) const noexcept {
    return handed(mmq_lanes_receive_backlog_timeout, detail::wait_ms(timeout), ec);
  }
  /** Leaves what waits in the fresh lane behind, and returns its numbers; none when first is end. */
  Stretch jump(std::error_code &ec) const noexcept {
    Stretch left{};
    detail::report(mmq_lanes_jump(handle(), &left.first, &left.end), ec);
    return left;
  }
  /** The stretches of the backlog that have yet to be handed out, the oldest first. */
  std::vector<Stretch> backlog(std::error_code &ec) const noexcept {
    std::vector<Stretch> stretches;
    detail::report(listed(stretches), ec);
    return stretches;
  }
  /** The gap of the latest MMQ_GAP; nullopt when there was none. */
  std::optional<Gap> last_gap() const noexcept {
    Gap gap{};
    return mmq_lanes_last_gap(handle(), &gap) == MMQ_OK ? std::optional<Gap>(gap) : std::nullopt;
  }
#if MMQ_HPP_THROWS
  std::optional<Delivery> receive() const { return handed(mmq_lanes_receive); }
  std::optional<Delivery> receive_fresh() const { return handed(mmq_lanes_receive_fresh); }
  std::optional<Delivery> receive_backlog() const { return handed(mmq_lanes_receive_backlog); }
  template <class Rep, class Period>
  std::optional<Delivery> receive_timeout(std::chrono::duration<Rep, Period> timeout) const {
    return handed(mmq_lanes_receive_timeout, detail::wait_ms(timeout));
  }
  template <class Rep, class Period>
  std::optional<Delivery> receive_fresh_timeout(std::chrono::duration<Rep, Period> timeout) const {
    return handed(mmq_lanes_receive_fresh_timeout, detail::wait_ms(timeout));
  }
  template <class Rep, class Period>
  std::optional<Delivery> receive_backlog_timeout(std::chrono::duration<Rep, Period> timeout) const {
    return handed(mmq_lanes_receive_backlog_timeout, detail::wait_ms(timeout));
  }
  Stretch jump() const {
    Stretch left{};
    detail::check(mmq_lanes_jump(handle(), &left.first, &left.end));
    return left;
  }
  std::vector<Stretch> backlog() const {
    std::vector<Stretch> stretches;
    detail::check(listed(stretches));
    return stretches;
  }
#endif

  mmq_lanes *handle() const noexcept { return handle_.get(); }
  mmq_lanes *release() noexcept { return handle_.release(); }
  explicit operator bool() const noexcept { return handle_ != nullptr; }

 private:
  using Receive = mmq_status (*)(mmq_lanes *, mmq_delivery **);
  using Wait = mmq_status (*)(mmq_lanes *, std::int64_t, mmq_delivery **);

  std::optional<Delivery> handed(Receive call, std::error_code &ec) const noexcept {
    mmq_delivery *delivery = nullptr;
    const mmq_status status = call(handle(), &delivery);
    return detail::value_or_error<Delivery>(status, delivery, ec);
  }
  std::optional<Delivery> handed(Wait call, std::int64_t ms, std::error_code &ec) const noexcept {
    mmq_delivery *delivery = nullptr;
    const mmq_status status = call(handle(), ms, &delivery);
    return detail::value_or_error<Delivery>(status, delivery, ec);
  }
#if MMQ_HPP_THROWS
  std::optional<Delivery> handed(Receive call) const {
    mmq_delivery *delivery = nullptr;
    const mmq_status status = call(handle(), &delivery);
    return value_or_throw(status, delivery);
  }
  std::optional<Delivery> handed(Wait call, std::int64_t ms) const {
    mmq_delivery *delivery = nullptr;
    const mmq_status status = call(handle(), ms, &delivery);
    return value_or_throw(status, delivery);
  }
  std::optional<Delivery> value_or_throw(mmq_status status, mmq_delivery *delivery) const {
    detail::throw_unless_answer(status, *this);
    return status == MMQ_OK ? std::optional<Delivery>(std::in_place, delivery) : std::nullopt;
  }
#endif
  mmq_status listed(std::vector<Stretch> &stretches) const {
    for (;;) {
      std::size_t count = 0;
      const mmq_status status = mmq_lanes_backlog(handle(), stretches.data(), stretches.size(), &count);
      if (status != MMQ_OK) return status;
      // Other threads may have left more behind since the length was read.
      const bool is_whole = count <= stretches.size();
      stretches.resize(count);
      if (is_whole) return status;
    }
  }

  std::unique_ptr<mmq_lanes, detail::Deleter<mmq_lanes, mmq_lanes_free>> handle_;
};

/**
 * A consumer: a named place in a queue, which is stored. The handle may outlive the queue's, and
 * answers MMQ_CLOSED then.
 */
class Consumer : public detail::Reader<detail::ConsumerCalls> {
 public:
  Consumer() noexcept = default;
  explicit Consumer(mmq_consumer *handle) noexcept : Reader(handle) {}

  /** The consumer's name; empty when there is no handle. */
  std::string_view name() const noexcept {
    const char *name = mmq_consumer_name(handle());
    return name ? std::string_view(name) : std::string_view();
  }
  /** The consumer's figures. */
  ConsumerStats stats(std::error_code &ec) const noexcept {
    ConsumerStats stats{};
    stats.struct_size = sizeof stats;
    detail::report(mmq_consumer_read_stats(handle(), &stats), ec);
    return stats;
  }
  /** Moves to the message seq, back or forward. */
  void seek(std::uint64_t seq, std::error_code &ec) const noexcept { detail::report(mmq_consumer_seek(handle(), seq), ec); }
  /** Makes a new consumer of that name at this one's place. */
  Consumer fork(const std::string &name, std::error_code &ec) const noexcept {
    mmq_consumer *consumer = nullptr;
    detail::report(mmq_consumer_fork(handle(), detail::c_text(name), &consumer), ec);
    return Consumer(consumer);
  }
  /** Reads this consumer in two lanes from now on; called again, it changes how. */
  Lanes lanes(const LaneOptions &options, std::error_code &ec) const noexcept {
    mmq_lanes *lanes = nullptr;
    detail::report(mmq_lanes_open(handle(), &options.options_, &lanes), ec);
    return Lanes(lanes);
  }
  Lanes lanes(std::error_code &ec) const noexcept { return lanes(LaneOptions(), ec); }
#if MMQ_HPP_THROWS
  ConsumerStats stats() const {
    ConsumerStats stats{};
    stats.struct_size = sizeof stats;
    detail::check(mmq_consumer_read_stats(handle(), &stats));
    return stats;
  }
  void seek(std::uint64_t seq) const { detail::check(mmq_consumer_seek(handle(), seq)); }
  Consumer fork(const std::string &name) const {
    mmq_consumer *consumer = nullptr;
    detail::check(mmq_consumer_fork(handle(), detail::c_text(name), &consumer));
    return Consumer(consumer);
  }
  Lanes lanes(const LaneOptions &options = LaneOptions()) const {
    mmq_lanes *lanes = nullptr;
    detail::check(mmq_lanes_open(handle(), &options.options_, &lanes));
    return Lanes(lanes);
  }
#endif
};

/** A queue. Destroying it closes it and loses the errors; close() reports them. */
class Queue : public detail::Reader<detail::QueueCalls> {
 public:
  Queue() noexcept = default;
  explicit Queue(mmq_queue *handle) noexcept : Reader(handle) {}

  /** Opens the queue in the directory dir. */
  static Queue open(const std::string &dir, const Options &options, std::error_code &ec) noexcept {
    mmq_queue *queue = nullptr;
    detail::report(opened(dir, options, &queue), ec);
    return Queue(queue);
  }
  static Queue open(const std::string &dir, std::error_code &ec) noexcept {
    mmq_queue *queue = nullptr;
    detail::report(mmq_open(detail::c_text(dir), nullptr, &queue), ec);
    return Queue(queue);
  }

  /** Puts a message at the tail and returns its sequence number. */
  std::uint64_t enqueue(std::string_view message, std::error_code &ec) const noexcept {
    return enqueue(message.data(), message.size(), ec);
  }
  std::uint64_t enqueue(const void *data, std::size_t len, std::error_code &ec) const noexcept {
    std::uint64_t seq = 0;
    detail::report(mmq_enqueue(handle(), data, len, &seq), ec);
    return seq;
  }
  /** Puts all messages at the tail, or none, and returns the first one's sequence number. */
  std::uint64_t enqueue_batch(const mmq_slice *messages, std::size_t count, std::error_code &ec) const noexcept {
    std::uint64_t seq = 0;
    detail::report(mmq_enqueue_batch(handle(), messages, count, &seq), ec);
    return seq;
  }
  std::uint64_t enqueue_batch(std::initializer_list<Slice> messages, std::error_code &ec) const noexcept {
    return enqueue_batch(messages.begin(), messages.size(), ec);
  }
  /** Puts one message at the tail whose bytes lie in several buffers. */
  std::uint64_t enqueue_parts(const mmq_slice *parts, std::size_t count, std::error_code &ec) const noexcept {
    std::uint64_t seq = 0;
    detail::report(mmq_enqueue_parts(handle(), parts, count, &seq), ec);
    return seq;
  }
  std::uint64_t enqueue_parts(std::initializer_list<Slice> parts, std::error_code &ec) const noexcept {
    return enqueue_parts(parts.begin(), parts.size(), ec);
  }
  /** Makes durable what was enqueued and taken before the call. */
  void flush(std::error_code &ec) const noexcept { detail::report(mmq_flush(handle()), ec); }
  /** The first sequence number not yet known to be durable. */
  std::uint64_t durable_seq(std::error_code &ec) const noexcept {
    std::uint64_t seq = 0;
    detail::report(mmq_durable_seq(handle(), &seq), ec);
    return seq;
  }
  /** Returns once the message seq is durable. */
  void wait_durable(std::uint64_t seq, std::error_code &ec) const noexcept {
    detail::report(mmq_wait_durable(handle(), seq), ec);
  }
  /** The queue's figures. */
  Stats stats(std::error_code &ec) const noexcept {
    Stats stats{};
    stats.struct_size = sizeof stats;
    detail::report(mmq_read_stats(handle(), &stats), ec);
    return stats;
  }
  /** The queue's id, the same at every opening. */
  Id id(std::error_code &ec) const noexcept {
    Id id{};
    detail::report(mmq_queue_id(handle(), id.data()), ec);
    return id;
  }
  /** Opens the consumer of that name; the first call with a name makes the consumer. Open all before the first one reads. */
  Consumer consumer(const std::string &name, std::error_code &ec) const noexcept {
    mmq_consumer *consumer = nullptr;
    detail::report(mmq_consumer_open(handle(), detail::c_text(name), &consumer), ec);
    return Consumer(consumer);
  }
  /** The same, but a new consumer begins where start says, in one step; seq counts with MMQ_START_SEQ. */
  Consumer consumer_at(const std::string &name, mmq_start start, std::uint64_t seq, std::error_code &ec) const noexcept {
    mmq_consumer *consumer = nullptr;
    detail::report(mmq_consumer_open_at(handle(), detail::c_text(name), start, seq, &consumer), ec);
    return Consumer(consumer);
  }
  /** Ends all waits with MMQ_INTERRUPTED, and leaves the queue open. */
  void interrupt(std::error_code &ec) const noexcept { detail::report(mmq_interrupt(handle()), ec); }
  /** The directory, as it was given to open; empty when there is no handle. */
  std::string_view path() const noexcept {
    const char *path = mmq_path(handle());
    return path ? std::string_view(path) : std::string_view();
  }
  /** The names of all consumers, in order. */
  std::vector<std::string> consumers(std::error_code &ec) const noexcept {
    std::string names;
    detail::report(listed(names), ec);
    return cut(names);
  }
  /** Removes the consumer of that name (empty: the queue's own): the queue keeps no messages for it any more. */
  void remove_consumer(const std::string &name, std::error_code &ec) const noexcept {
    detail::report(mmq_consumer_remove(handle(), detail::c_text(name)), ec);
  }
  /** Makes everything durable, closes the files and frees the handle, also with an error. */
  void close(std::error_code &ec) noexcept { detail::report(mmq_close(release()), ec); }

#if MMQ_HPP_THROWS
  explicit Queue(const std::string &dir) : Queue(open(dir)) {}
  Queue(const std::string &dir, const Options &options) : Queue(open(dir, options)) {}

  static Queue open(const std::string &dir, const Options &options) {
    mmq_queue *queue = nullptr;
    detail::check(opened(dir, options, &queue));
    return Queue(queue);
  }
  static Queue open(const std::string &dir) {
    mmq_queue *queue = nullptr;
    detail::check(mmq_open(detail::c_text(dir), nullptr, &queue));
    return Queue(queue);
  }
  std::uint64_t enqueue(std::string_view message) const { return enqueue(message.data(), message.size()); }
  std::uint64_t enqueue(const void *data, std::size_t len) const {
    std::uint64_t seq = 0;
    detail::check(mmq_enqueue(handle(), data, len, &seq));
    return seq;
  }
  std::uint64_t enqueue_batch(const mmq_slice *messages, std::size_t count) const {
    std::uint64_t seq = 0;
    detail::check(mmq_enqueue_batch(handle(), messages, count, &seq));
    return seq;
  }
  std::uint64_t enqueue_batch(std::initializer_list<Slice> messages) const {
    return enqueue_batch(messages.begin(), messages.size());
  }
  std::uint64_t enqueue_parts(const mmq_slice *parts, std::size_t count) const {
    std::uint64_t seq = 0;
    detail::check(mmq_enqueue_parts(handle(), parts, count, &seq));
    return seq;
  }
  std::uint64_t enqueue_parts(std::initializer_list<Slice> parts) const {
    return enqueue_parts(parts.begin(), parts.size());
  }
  void flush() const { detail::check(mmq_flush(handle())); }
  std::uint64_t durable_seq() const {
    std::uint64_t seq = 0;
    detail::check(mmq_durable_seq(handle(), &seq));
    return seq;
  }
  void wait_durable(std::uint64_t seq) const { detail::check(mmq_wait_durable(handle(), seq)); }
  Stats stats() const {
    Stats stats{};
    stats.struct_size = sizeof stats;
    detail::check(mmq_read_stats(handle(), &stats));
    return stats;
  }
  Id id() const {
    Id id{};
    detail::check(mmq_queue_id(handle(), id.data()));
    return id;
  }
  Consumer consumer(const std::string &name) const {
    mmq_consumer *consumer = nullptr;
    detail::check(mmq_consumer_open(handle(), detail::c_text(name), &consumer));
    return Consumer(consumer);
  }
  Consumer consumer_at(const std::string &name, mmq_start start, std::uint64_t seq = 0) const {
    mmq_consumer *consumer = nullptr;
    detail::check(mmq_consumer_open_at(handle(), detail::c_text(name), start, seq, &consumer));
    return Consumer(consumer);
  }
  void interrupt() const { detail::check(mmq_interrupt(handle())); }
  std::vector<std::string> consumers() const {
    std::string names;
    detail::check(listed(names));
    return cut(names);
  }
  void remove_consumer(const std::string &name) const { detail::check(mmq_consumer_remove(handle(), detail::c_text(name))); }
  void close() { detail::check(mmq_close(release())); }
#endif

 private:
  /** Sets names to all names, each followed by a zero byte. */
  mmq_status listed(std::string &names) const {
    for (;;) {
      std::size_t len = 0;
      const mmq_status status = mmq_consumers(handle(), names.empty() ? nullptr : &names[0], names.size(), &len);
      if (status == MMQ_OK || status == MMQ_BUFFER_TOO_SMALL) names.resize(len);
      // Consumers may have been added since the length was read.
      if (status != MMQ_BUFFER_TOO_SMALL) return status;
    }
  }
  static std::vector<std::string> cut(const std::string &names) {
    std::vector<std::string> list;
    for (std::size_t at = 0; at < names.size(); at += list.back().size() + 1) list.emplace_back(names.c_str() + at);
    return list;
  }
  static mmq_status opened(const std::string &dir, const Options &options, mmq_queue **queue) noexcept {
    if (options.status() != MMQ_OK) return options.status();
    return mmq_open(detail::c_text(dir), options.handle(), queue);
  }
};

inline Redelivery &Redelivery::dead_letters(const Queue &queue) noexcept {
  has_dead_letters_ = true;
  dead_letters_ = queue.handle();
  return *this;
}

/**
 * A consumer of a queue that another process has open. Each message goes to one reader, in whichever
 * process. The handle may outlive the client's.
 */
class ClientConsumer {
 public:
  ClientConsumer() noexcept = default;
  explicit ClientConsumer(mmq_client_consumer *handle) noexcept : handle_(handle) {}

  /** The next message, which stays in the queue; nullopt when there is none. */
  std::optional<Message> peek(std::error_code &ec) const noexcept {
    mmq_message *message = nullptr;
    const mmq_status status = mmq_client_peek(handle(), &message);
    return detail::value_or_error<Message>(status, message, ec);
  }
  /** Takes the next message; nullopt when there is none. */
  std::optional<Message> dequeue(std::error_code &ec) const noexcept { return dequeue_timeout(none, ec); }
  /** Takes the next message, and waits for it up to timeout (mmq::forever: for ever). */
  template <class Rep, class Period>
  std::optional<Message> dequeue_timeout(std::chrono::duration<Rep, Period> timeout, std::error_code &ec) const noexcept {
    mmq_message *message = nullptr;
    const mmq_status status = mmq_client_dequeue(handle(), detail::wait_ms(timeout), &message);
    return detail::value_or_error<Message>(status, message, ec);
  }
  /** Hands out the next message, to be acknowledged; nullopt when there is none. */
  std::optional<Delivery> receive(std::error_code &ec) const noexcept { return receive_timeout(none, ec); }
  /** As receive, but waits for a message up to timeout (mmq::forever: for ever). */
  template <class Rep, class Period>
  std::optional<Delivery> receive_timeout(std::chrono::duration<Rep, Period> timeout, std::error_code &ec) const noexcept {
    mmq_delivery *delivery = nullptr;
    const mmq_status status = mmq_client_receive(handle(), detail::wait_ms(timeout), &delivery);
    return detail::value_or_error<Delivery>(status, delivery, ec);
  }
  /** Hands out up to max messages, at most 64 at a time, without waiting; Delivery::ack_batch acknowledges them. */
  std::vector<Delivery> receive_batch(std::size_t max, std::error_code &ec) const noexcept {
    std::vector<Delivery> deliveries;
    detail::report_unless_answer(some(max, deliveries), ec);
    return deliveries;
  }
  /** Moves to the message seq, back or forward. */
  void seek(std::uint64_t seq, std::error_code &ec) const noexcept { detail::report(mmq_client_seek(handle(), seq), ec); }
  /** The gap of the latest MMQ_GAP; nullopt when there was none. */
  std::optional<Gap> last_gap() const noexcept {
    Gap gap{};
    return mmq_client_last_gap(handle(), &gap) == MMQ_OK ? std::optional<Gap>(gap) : std::nullopt;
  }
#if MMQ_HPP_THROWS
  std::optional<Message> peek() const {
    mmq_message *message = nullptr;
    const mmq_status status = mmq_client_peek(handle(), &message);
    return value_or_throw<Message>(status, message);
  }
  std::optional<Message> dequeue() const { return dequeue_timeout(none); }
  template <class Rep, class Period>
  std::optional<Message> dequeue_timeout(std::chrono::duration<Rep, Period> timeout) const {
    mmq_message *message = nullptr;
    const mmq_status status = mmq_client_dequeue(handle(), detail::wait_ms(timeout), &message);
    return value_or_throw<Message>(status, message);
  }
  std::optional<Delivery> receive() const { return receive_timeout(none); }
  template <class Rep, class Period>
  std::optional<Delivery> receive_timeout(std::chrono::duration<Rep, Period> timeout) const {
    mmq_delivery *delivery = nullptr;
    const mmq_status status = mmq_client_receive(handle(), detail::wait_ms(timeout), &delivery);
    return value_or_throw<Delivery>(status, delivery);
  }
  std::vector<Delivery> receive_batch(std::size_t max) const {
    std::vector<Delivery> deliveries;
    detail::throw_unless_answer(some(max, deliveries), *this);
    return deliveries;
  }
  void seek(std::uint64_t seq) const { detail::check(mmq_client_seek(handle(), seq)); }
#endif

  mmq_client_consumer *handle() const noexcept { return handle_.get(); }
  mmq_client_consumer *release() noexcept { return handle_.release(); }
  explicit operator bool() const noexcept { return handle_ != nullptr; }

 private:
  static constexpr std::chrono::milliseconds none{0};

  /** Allocates before it receives: a message that was handed out must not go back for want of memory. */
  mmq_status some(std::size_t max, std::vector<Delivery> &deliveries) const {
    std::vector<mmq_delivery *> raw(std::min<std::size_t>(max, 64));
    deliveries.reserve(raw.size());
    std::size_t count = 0;
    const mmq_status status = mmq_client_receive_batch(handle(), raw.data(), raw.size(), &count);
    for (std::size_t at = 0; at < count; at++) deliveries.emplace_back(raw[at]);
    return status;
  }
#if MMQ_HPP_THROWS
  template <class Value, class Raw>
  std::optional<Value> value_or_throw(mmq_status status, Raw *raw) const {
    detail::throw_unless_answer(status, *this);
    if (status != MMQ_OK) return std::nullopt;
    return std::optional<Value>(std::in_place, raw);
  }
#endif

  std::unique_ptr<mmq_client_consumer, detail::Deleter<mmq_client_consumer, mmq_client_consumer_free>> handle_;
};

/** A queue that another process has open and shares (Options::shared). Any number of threads may use a client. */
class Client {
 public:
  Client() noexcept = default;
  explicit Client(mmq_client *handle) noexcept : handle_(handle) {}

  /** Connects to the process that has the queue in the directory dir open. */
  static Client connect(const std::string &dir, std::error_code &ec) noexcept {
    mmq_client *client = nullptr;
    detail::report(mmq_connect(detail::c_text(dir), &client), ec);
    return Client(client);
  }
  /** Puts a message at the tail and returns its sequence number. */
  std::uint64_t enqueue(std::string_view message, std::error_code &ec) const noexcept {
    return enqueue(message.data(), message.size(), ec);
  }
  std::uint64_t enqueue(const void *data, std::size_t len, std::error_code &ec) const noexcept {
    std::uint64_t seq = 0;
    detail::report(mmq_client_enqueue(handle(), data, len, &seq), ec);
    return seq;
  }
  /** Puts all messages at the tail, or none, and returns the first one's sequence number. */
  std::uint64_t enqueue_batch(const mmq_slice *messages, std::size_t count, std::error_code &ec) const noexcept {
    std::uint64_t seq = 0;
    detail::report(mmq_client_enqueue_batch(handle(), messages, count, &seq), ec);
    return seq;
  }
  std::uint64_t enqueue_batch(std::initializer_list<Slice> messages, std::error_code &ec) const noexcept {
    return enqueue_batch(messages.begin(), messages.size(), ec);
  }
  /** Makes durable what was enqueued and taken before the call. */
  void flush(std::error_code &ec) const noexcept { detail::report(mmq_client_flush(handle()), ec); }
  /** Returns once the message seq is durable. */
  void wait_durable(std::uint64_t seq, std::error_code &ec) const noexcept {
    detail::report(mmq_client_wait_durable(handle(), seq), ec);
  }
  /** The queue's figures. */
  Stats stats(std::error_code &ec) const noexcept {
    Stats stats{};
    stats.struct_size = sizeof stats;
    detail::report(mmq_client_read_stats(handle(), &stats), ec);
    return stats;
  }
  /** Opens the consumer of that name; the first call with a name makes the consumer. */
  ClientConsumer consumer(const std::string &name, std::error_code &ec) const noexcept {
    mmq_client_consumer *consumer = nullptr;
    detail::report(opened(name, &consumer), ec);
    return ClientConsumer(consumer);
  }
  /** The queue's own consumer. */
  ClientConsumer default_consumer(std::error_code &ec) const noexcept {
    mmq_client_consumer *consumer = nullptr;
    detail::report(mmq_client_consumer_open(handle(), nullptr, &consumer), ec);
    return ClientConsumer(consumer);
  }
#if MMQ_HPP_THROWS
  explicit Client(const std::string &dir) : Client(connect(dir)) {}

  static Client connect(const std::string &dir) {
    mmq_client *client = nullptr;
    detail::check(mmq_connect(detail::c_text(dir), &client));
    return Client(client);
  }
  std::uint64_t enqueue(std::string_view message) const { return enqueue(message.data(), message.size()); }
  std::uint64_t enqueue(const void *data, std::size_t len) const {
    std::uint64_t seq = 0;
    detail::check(mmq_client_enqueue(handle(), data, len, &seq));
    return seq;
  }
  std::uint64_t enqueue_batch(const mmq_slice *messages, std::size_t count) const {
    std::uint64_t seq = 0;
    detail::check(mmq_client_enqueue_batch(handle(), messages, count, &seq));
    return seq;
  }
  std::uint64_t enqueue_batch(std::initializer_list<Slice> messages) const {
    return enqueue_batch(messages.begin(), messages.size());
  }
  void flush() const { detail::check(mmq_client_flush(handle())); }
  void wait_durable(std::uint64_t seq) const { detail::check(mmq_client_wait_durable(handle(), seq)); }
  Stats stats() const {
    Stats stats{};
    stats.struct_size = sizeof stats;
    detail::check(mmq_client_read_stats(handle(), &stats));
    return stats;
  }
  ClientConsumer consumer(const std::string &name) const {
    mmq_client_consumer *consumer = nullptr;
    detail::check(opened(name, &consumer));
    return ClientConsumer(consumer);
  }
  ClientConsumer default_consumer() const {
    mmq_client_consumer *consumer = nullptr;
    detail::check(mmq_client_consumer_open(handle(), nullptr, &consumer));
    return ClientConsumer(consumer);
  }
#endif

  mmq_client *handle() const noexcept { return handle_.get(); }
  mmq_client *release() noexcept { return handle_.release(); }
  explicit operator bool() const noexcept { return handle_ != nullptr; }

 private:
  mmq_status opened(const std::string &name, mmq_client_consumer **consumer) const noexcept {
    // For C, no name would be the queue's own consumer: it refuses an empty one instead.
    const char *const text = detail::c_text(name);
    return mmq_client_consumer_open(handle(), text ? text : "", consumer);
  }

  std::unique_ptr<mmq_client, detail::Deleter<mmq_client, mmq_client_free>> handle_;
};

/** The queue in that directory, as it is seen from outside: mmq_inspect. */
inline Inspection inspect(const std::string &dir, std::error_code &ec) noexcept {
  Inspection seen{};
  seen.struct_size = sizeof seen;
  detail::report(mmq_inspect(detail::c_text(dir), &seen), ec);
  return seen;
}
#if MMQ_HPP_THROWS
inline Inspection inspect(const std::string &dir) {
  Inspection seen{};
  seen.struct_size = sizeof seen;
  detail::check(mmq_inspect(detail::c_text(dir), &seen));
  return seen;
}
#endif

}  // namespace mmq

#endif  // C++17
#endif  // MMQ_HPP
