/*
 * mmq_forward.hpp: forwarding for C++17, over mmq_forward.h, which is the manual. Both are there if
 * the library was built with forwarding (mmq-install --forward).
 *
 *     mmq::Forwarder forwarder(queue, "redis://localhost", mmq::ForwardOptions().key("events"));
 *     forwarder.run();
 *     ... the program enqueues as ever; its end stops the forwarder ...
 *
 * Errors as in mmq.hpp: each call exists twice. Declare a forwarder behind its queue, so that it
 * ends first.
 */
#ifndef MMQ_FORWARD_HPP
#define MMQ_FORWARD_HPP

#include "mmq.hpp"
#include "mmq_forward.h"

namespace mmq {

/**
 * How a queue is forwarded: mmq::ForwardOptions().stream("EVENTS").password(secret).patience(60s).
 * The fields of mmq_forward_options say what each means.
 */
class ForwardOptions {
 public:
  ForwardOptions &consumer(std::string name) { return text(consumer_, std::move(name)); }
  ForwardOptions &name(std::string name) { return text(name_, std::move(name)); }
  ForwardOptions &password(std::string password) { return text(password_, std::move(password)); }
  ForwardOptions &stream(std::string stream) { return text(stream_, std::move(stream)); }
  ForwardOptions &subject(std::string subject) { return text(subject_, std::move(subject)); }
  ForwardOptions &key(std::string key) { return text(key_, std::move(key)); }
  ForwardOptions &credentials_file(std::string path) { return text(credentials_file_, std::move(path)); }
  ForwardOptions &ca_file(std::string path) { return text(ca_file_, std::move(path)); }
  /** Our own certificate, and its private key. */
  ForwardOptions &certificate(std::string path, std::string private_key) {
    return text(certificate_file_, std::move(path)).text(private_key_file_, std::move(private_key));
  }
  /** How much the queue keeps of what the far side has: so many messages, or so many bytes; 0: nothing. */
  ForwardOptions &keep(std::uint64_t messages, std::uint64_t bytes) noexcept {
    keep_messages_ = kept(messages);
    keep_bytes_ = kept(bytes);
    return *this;
  }
  template <class Rep, class Period>
  ForwardOptions &patience(std::chrono::duration<Rep, Period> time) noexcept {
    patience_ms_ = detail::whole_ms(time);
    return *this;
  }
  /** Each message carries a time before which it was not enqueued. */
  ForwardOptions &times() noexcept {
    times_ = 1;
    return *this;
  }
  ForwardOptions &on_refused(mmq_on_refused what) noexcept {
    on_refused_ = what;
    return *this;
  }
  ForwardOptions &if_forgotten(mmq_if_forgotten what) noexcept {
    if_forgotten_ = what;
    return *this;
  }

 private:
  friend class Forwarder;
  using Text = std::optional<std::string>;

  ForwardOptions &text(Text &field, std::string value) {
    has_zero_byte_ = has_zero_byte_ || value.find('\0') != std::string::npos;
    field = std::move(value);
    return *this;
  }
  /** C takes 0 for the default. */
  static std::int64_t kept(std::uint64_t count) noexcept {
    if (count == 0) return -1;
    return count < INT64_MAX ? static_cast<std::int64_t>(count) : INT64_MAX;
  }
  mmq_status open(mmq_queue *queue, const std::string &url, mmq_forwarder **out) const noexcept {
    const auto c_text = [](const Text &text) { return text ? text->c_str() : nullptr; };
    mmq_forward_options options{};
    options.struct_size = sizeof options;
    options.consumer = c_text(consumer_);
    options.name = c_text(name_);
    options.password = c_text(password_);
    options.stream = c_text(stream_);
    options.subject = c_text(subject_);
    options.key = c_text(key_);
    options.credentials_file = c_text(credentials_file_);
    options.ca_file = c_text(ca_file_);
    options.certificate_file = c_text(certificate_file_);
    options.private_key_file = c_text(private_key_file_);
    options.keep_messages = keep_messages_;
    options.keep_bytes = keep_bytes_;
    options.patience_ms = patience_ms_;
    options.on_refused = on_refused_;
    options.if_forgotten = if_forgotten_;
    options.times = times_;
    // C would cut a text there.
    const char *where = has_zero_byte_ ? nullptr : detail::c_text(url);
    return mmq_forwarder_new(queue, where, &options, out);
  }

  Text consumer_, name_, password_, stream_, subject_, key_;
  Text credentials_file_, ca_file_, certificate_file_, private_key_file_;
  bool has_zero_byte_ = false;
  std::int64_t keep_messages_ = 0, keep_bytes_ = 0, patience_ms_ = 0;
  int times_ = 0;
  mmq_on_refused on_refused_ = MMQ_REFUSED_STOP;
  mmq_if_forgotten if_forgotten_ = MMQ_FORGOTTEN_STOP;
};

/** How forwarding gets on, and a text for a person, empty when there is nothing to say. */
struct ForwardProgress : mmq_forward_progress {
  std::string text;
};

/**
 * Forwards a queue on a thread of the library. Destroying it stops that, and waits for the end. A
 * child of a fork may destroy it, which changes nothing for its parent.
 */
class Forwarder {
 public:
  Forwarder() noexcept = default;
  explicit Forwarder(mmq_forwarder *handle) noexcept : handle_(handle) {}

  /** Prepares to forward that queue to the far side at url. */
  static Forwarder open(const Queue &queue, const std::string &url, const ForwardOptions &options,
                        std::error_code &ec) noexcept {
    mmq_forwarder *forwarder = nullptr;
    detail::report(options.open(queue.handle(), url, &forwarder), ec);
    return Forwarder(forwarder);
  }
  /** Begins to forward, and returns at once. */
  void run(mmq_forward_until until, std::error_code &ec) const noexcept {
    detail::report(mmq_forwarder_run(handle(), until), ec);
  }
  void run(std::error_code &ec) const noexcept { run(MMQ_UNTIL_STOPPED, ec); }
  /** Makes forwarding end, and does not wait for it. */
  void stop(std::error_code &ec) const noexcept { detail::report(mmq_forwarder_stop(handle()), ec); }
  /** Waits for the end: whether it has ended. How it ended badly is the error. */
  template <class Rep, class Period>
  bool wait(std::chrono::duration<Rep, Period> timeout, std::error_code &ec) const noexcept {
    const mmq_status status = mmq_forwarder_wait(handle(), detail::wait_ms(timeout));
    detail::report(status == MMQ_TIMED_OUT ? MMQ_OK : status, ec);
    return status != MMQ_TIMED_OUT;
  }
  ForwardProgress progress(std::error_code &ec) const {
    ForwardProgress progress{};
    detail::report(read(progress), ec);
    return progress;
  }
#if MMQ_HPP_THROWS
  Forwarder(const Queue &queue, const std::string &url, const ForwardOptions &options) {
    mmq_forwarder *forwarder = nullptr;
    detail::check(options.open(queue.handle(), url, &forwarder));
    handle_.reset(forwarder);
  }
  void run(mmq_forward_until until = MMQ_UNTIL_STOPPED) const { detail::check(mmq_forwarder_run(handle(), until)); }
  void stop() const { detail::check(mmq_forwarder_stop(handle())); }
  template <class Rep, class Period>
  bool wait(std::chrono::duration<Rep, Period> timeout) const {
    const mmq_status status = mmq_forwarder_wait(handle(), detail::wait_ms(timeout));
    if (status != MMQ_TIMED_OUT) detail::check(status);
    return status != MMQ_TIMED_OUT;
  }
  ForwardProgress progress() const {
    ForwardProgress progress{};
    detail::check(read(progress));
    return progress;
  }
#endif

  mmq_forwarder *handle() const noexcept { return handle_.get(); }
  mmq_forwarder *release() noexcept { return handle_.release(); }
  explicit operator bool() const noexcept { return handle_ != nullptr; }

 private:
  mmq_status read(ForwardProgress &progress) const {
    for (std::size_t room = 512;;) {
      progress.text.resize(room);
      progress.struct_size = sizeof(mmq_forward_progress);
      const mmq_status status = mmq_forwarder_read_progress(handle(), &progress, &progress.text[0], room + 1);
      // The text may have grown since its length was read.
      const bool is_whole = status != MMQ_OK || progress.text_len <= room;
      progress.text.resize(status == MMQ_OK ? static_cast<std::size_t>(progress.text_len) : 0);
      if (is_whole) return status;
      room = progress.text.size();
    }
  }

  std::unique_ptr<mmq_forwarder, detail::Deleter<mmq_forwarder, mmq_forwarder_free>> handle_;
};

}  // namespace mmq

#endif  // MMQ_FORWARD_HPP
