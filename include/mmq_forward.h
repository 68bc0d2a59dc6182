/*
 * mmq_forward.h: sends the messages of a queue on to a stream of NATS JetStream or of Redis, in
 * order, each once, over any outage of either side. docs/forward.md says what is promised.
 *
 * The library has these functions if it was built with forwarding, as mmq-install --forward does:
 * this header is installed then. mmq_version and the contract of mmq.h hold here too.
 *
 *     mmq_forward_options options = {0};
 *     mmq_forwarder *forwarder;
 *     options.struct_size = sizeof options;
 *     options.key = "events";
 *     if (mmq_forwarder_new(queue, "redis://localhost", &options, &forwarder) != MMQ_OK) ...
 *     if (mmq_forwarder_run(forwarder, MMQ_UNTIL_STOPPED) != MMQ_OK) ...
 *     ... the program enqueues as ever ...
 *     mmq_forwarder_free(forwarder);
 *
 * Made from the library's source by `MMQ_BLESS=1 cargo test --test sources header`; do not edit.
 * C99 and later, C++11 and later (C++17: see also mmq_forward.hpp).
 *
 * Ownership. A forwarder goes from mmq_forwarder_new to mmq_forwarder_free, best before mmq_close.
 * It has a consumer of its own in the queue, which stays when the forwarder is freed: the next
 * forwarder goes on there.
 *
 * Threads. The library forwards on a thread of its own, and the clients of the far sides have
 * theirs. Any thread may call any function on the same forwarder at the same time, except that none
 * may free it while another uses it.
 *
 * Processes. After fork() the child may only free a forwarder of its parent, which changes nothing
 * for the parent; every other call returns MMQ_FORKED. A child that is to forward a queue of its own
 * runs another program first, or is forked before its parent makes a forwarder: the clients of the
 * far sides are other libraries.
 */


#ifndef MMQ_FORWARD_H
#define MMQ_FORWARD_H

#include "mmq.h"

/** What a forwarder does now. */
enum mmq_forward_state
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /** It does not run yet, or has not heard of the far side yet. */
  MMQ_FORWARD_BEGINNING = 0,
  /** It sends messages, or waits for their acknowledgement. */
  MMQ_FORWARD_SENDING = 1,
  /** The far side has all messages of the queue. */
  MMQ_FORWARD_IDLE = 2,
  /** There is no session: it waits before it tries again. */
  MMQ_FORWARD_PAUSING = 3,
  /** It has ended: status says how. */
  MMQ_FORWARD_ENDED = 4,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum mmq_forward_state mmq_forward_state;
#else
typedef int32_t mmq_forward_state;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/** How long forwarding goes on. */
enum mmq_forward_until
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /** Until mmq_forwarder_stop, or until the queue is closed. */
  MMQ_UNTIL_STOPPED = 0,
  /** The same, and at the latest until the far side has all messages of the queue. */
  MMQ_UNTIL_EMPTY = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum mmq_forward_until mmq_forward_until;
#else
typedef int32_t mmq_forward_until;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/** What happens to a message that the far side refuses for good. */
enum mmq_on_refused
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /** Forwarding ends with MMQ_FAR_SIDE. The message waits in the queue. The default. */
  MMQ_REFUSED_STOP = 0,
  /** The message is left out, and reported to the far side as missing. */
  MMQ_REFUSED_SKIP = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum mmq_on_refused mmq_on_refused;
#else
typedef int32_t mmq_on_refused;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * What happens when the far side holds no message of the queue, although it had acknowledged some:
 * somebody removed the stream or the key.
 */
enum mmq_if_forgotten
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * Forwarding ends with MMQ_FAR_SIDE, unless the far side's positions show that it only removed
   * what it had: then it goes on. The default.
   */
  MMQ_FORGOTTEN_STOP = 0,
  /** The kept messages are sent again, and the others are reported as missing. */
  MMQ_FORGOTTEN_RESEND = 1,
  /** Forwarding goes on with the first message that was not acknowledged. */
  MMQ_FORGOTTEN_CONTINUE = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum mmq_if_forgotten mmq_if_forgotten;
#else
typedef int32_t mmq_if_forgotten;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * Sends the messages of a queue on to a stream of NATS JetStream or of Redis, in order, each once,
 * over any outage: see docs/forward.md.
 */
typedef struct mmq_forwarder mmq_forwarder;

/**
 * How a queue is forwarded. A field that is zero or NULL has its default. Later versions append
 * fields: set struct_size to sizeof(mmq_forward_options), and the rest to zero.
 *
 * All texts are UTF-8. The library copies what it needs before mmq_forwarder_new returns.
 */
typedef struct mmq_forward_options {
  /** The caller's sizeof(mmq_forward_options). */
  size_t struct_size;
  /**
   * The consumer that forwarding reads through, 1 to 255 bytes. It is made if it is missing, and
   * nobody else may use it. Default "forward".
   */
  const char *consumer;
  /** The queue's name at the far side. Default: the last part of its directory's path. */
  const char *name;
  /**
   * The password of the user in the URL. Without a user there it is that of the default user of
   * Redis, or a token of NATS. No error text has it. Default: what the URL says.
   */
  const char *password;
  /** NATS: the stream, which must exist. Needed there. */
  const char *stream;
  /** NATS: the subject, in which {dir} is the queue's name. Default "mmq." and that name. */
  const char *subject;
  /**
   * Redis: the stream's key, in which {dir} is the queue's name and {host} the machine's. Needed
   * there.
   */
  const char *key;
  /** NATS: the path of a credentials file. Default: none. */
  const char *credentials_file;
  /**
   * The path of a file (PEM) with the authorities that may sign the server's certificate.
   * Default: the system's.
   */
  const char *ca_file;
  /** The path of our own certificate (PEM), for servers that ask for it. Default: none. */
  const char *certificate_file;
  /** The path of that certificate's private key (PEM). */
  const char *private_key_file;
  /**
   * How many acknowledged messages the queue keeps, to send them again if the far side loses
   * them. Below 0: none. Default 10000.
   */
  int64_t keep_messages;
  /**
   * How many bytes of them it keeps; below 0: none. Default 67108864 (64 MiB), and at most a
   * quarter of mmq_options_set_max_bytes.
   */
  int64_t keep_bytes;
  /**
   * A session ends, and another one begins, when messages are on their way and the far side
   * acknowledges none for so many milliseconds. Default 30000.
   */
  int64_t patience_ms;
  /** What happens to a message that the far side refuses for good. */
  mmq_on_refused on_refused;
  /** What happens when the far side holds no message of the queue any more. */
  mmq_if_forgotten if_forgotten;
  /**
   * Not 0: each message carries a time in milliseconds since 1970, before which it was not
   * enqueued (header Mmq-Time of NATS, field time of Redis): when its segment was begun.
   */
  int times;
} mmq_forward_options;

/**
 * How forwarding gets on. Counts are of the present run. Later versions append fields: set
 * struct_size to sizeof(mmq_forward_progress) before every call of mmq_forwarder_read_progress.
 */
typedef struct mmq_forward_progress {
  /**
   * In: the caller's sizeof(mmq_forward_progress). Out: how many bytes were filled; fields
   * behind them are as they were.
   */
  size_t struct_size;
  /** What it does now. */
  mmq_forward_state state;
  /** With MMQ_FORWARD_ENDED the status with which it ended (see mmq_forwarder_wait), else MMQ_OK. */
  mmq_status status;
  /** Messages sent; a message sent twice counts twice. */
  uint64_t sent;
  /** Messages that the far side acknowledged. */
  uint64_t acknowledged;
  /** Messages that the far side refuses for good, and that were left out. */
  uint64_t refused;
  /** Sessions begun or tried. */
  uint64_t sessions;
  /** Bytes of the messages sent. */
  uint64_t sent_bytes;
  /** Bytes of the messages that the far side acknowledged. */
  uint64_t acknowledged_bytes;
  /** Numbers that the far side had acknowledged and lost, and that the queue had not kept. */
  uint64_t lost_there;
  /**
   * When the far side last acknowledged a message, in earlier runs too, in milliseconds since
   * 1970; 0 when it never did.
   */
  uint64_t acknowledged_at_ms;
  /** The first sequence number that is not acknowledged. */
  uint64_t place;
  /** How many numbers are still to be acknowledged. */
  uint64_t lag;
  /** How many acknowledged numbers the queue keeps. */
  uint64_t kept;
  /** The length of the whole text in bytes, without a zero byte. */
  uint64_t text_len;
} mmq_forward_progress;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Prepares to forward the messages of a queue. Connects to nothing yet: mmq_forwarder_run does.
 * The program goes on using the queue. Close it after the forwarder was freed; if the program
 * closes it before, forwarding ends with MMQ_CLOSED.
 *
 * The queue frees the space of messages that the far side has acknowledged and all other consumers
 * have read, except for those it keeps (keep_messages).
 *
 * @param queue Not NULL.
 * @param url Where to, UTF-8: nats://host:4222 or tls://host (several servers with commas
 *   between), redis://host:6379/0, rediss://host, unix:///run/redis.sock. User and password may
 *   stand in it (nats://user:password@host). Not NULL.
 * @param options How to forward; the far side's stream or key is needed. NULL for the defaults.
 * @param out Receives the handle; free it with mmq_forwarder_free. Not NULL.
 * @return MMQ_OK; MMQ_INVALID_ARGUMENT, also for a URL that this library has no client for, an
 *   option that is missing or does not apply, and when struct_size was not set; MMQ_FULL or MMQ_IO
 *   when there is no room for the consumer, MMQ_FORKED.
 */
mmq_status mmq_forwarder_new(mmq_queue *queue,
                             const char *url,
                             const struct mmq_forward_options *options,
                             struct mmq_forwarder **out);

/**
 * Begins to forward, on a thread of the library, and returns at once. What a later minute may mend
 * does not end it: a server that is away or full, and after the first session also one that
 * refuses the user, or a stream that has gone. It may run again once it has ended, for any reason.
 *
 * @param forwarder Not NULL.
 * @param until MMQ_UNTIL_STOPPED or MMQ_UNTIL_EMPTY.
 * @return MMQ_OK, MMQ_IO when no thread could be started, MMQ_FORKED, MMQ_INVALID_ARGUMENT, also
 *   for an unknown number and while it runs already.
 */
mmq_status mmq_forwarder_run(struct mmq_forwarder *forwarder, mmq_forward_until until);

/**
 * Makes forwarding end within a second, and does not wait for it: mmq_forwarder_wait does.
 * Messages on their way may still arrive; the next run asks the far side which did. Does nothing
 * when it does not run.
 *
 * @param forwarder Not NULL.
 * @return MMQ_OK, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_forwarder_stop(struct mmq_forwarder *forwarder);

/**
 * Waits until forwarding has ended, and says how. Answers at once when it does not run.
 *
 * @param forwarder Not NULL.
 * @param timeout_ms Milliseconds to wait; 0: not at all; below 0: for ever.
 * @return MMQ_OK when it was stopped, has forwarded all (MMQ_UNTIL_EMPTY), or never ran;
 *   MMQ_TIMED_OUT while it runs; MMQ_FAR_SIDE when a person must act: mmq_last_error says why, as
 *   for a refused login or a missing stream before the first session, a message that the far side
 *   refuses, a stream that was made anew, a directory that is an older copy of the queue;
 *   MMQ_CLOSED when the queue was closed, or another status with which the queue failed;
 *   MMQ_FORKED, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_forwarder_wait(struct mmq_forwarder *forwarder, int64_t timeout_ms);

/**
 * Reads how forwarding gets on, with a text for a person: why there is no session now, why it
 * ended, or else what to know of the far side's settings. The text is empty when there is nothing
 * to say. It has no password in it.
 *
 * @param forwarder Not NULL.
 * @param out Receives the figures; set out->struct_size before. Not NULL.
 * @param buf Receives the text, truncated to fit, and always ended by a zero byte. NULL for none.
 * @param cap Size of buf in bytes.
 * @return MMQ_OK; MMQ_FORKED; MMQ_INVALID_ARGUMENT, also when struct_size was not set.
 */
mmq_status mmq_forwarder_read_progress(const struct mmq_forwarder *forwarder,
                                       struct mmq_forward_progress *out,
                                       char *buf,
                                       size_t cap);

/**
 * Stops forwarding, waits until it has ended (within about a second), and frees the handle. The
 * queue stays open, and may be closed before. In a forked child it only frees the handle: the
 * parent goes on forwarding.
 *
 * @param forwarder From mmq_forwarder_new, or NULL.
 */
void mmq_forwarder_free(struct mmq_forwarder *forwarder);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* MMQ_FORWARD_H */
