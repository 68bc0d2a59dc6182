/*
 * mmq: an embedded, durable first-in first-out queue on memory-mapped files.
 *
 * A queue is a directory. A message is bytes. Any number of threads of one process put messages in
 * at the tail and take them out at the head. The queue may be far larger than memory. Its messages
 * survive the process and, once flushed, a power cut. There is no server.
 *
 * Made from the library's source; do not edit. C99 and later, C++11 and later (C++17: see also
 * mmq.hpp).
 *
 * A whole program (cc program.c -lmmq):
 *
 *     #include <mmq.h>
 *     #include <stdio.h>
 *
 *     int main(void) {
 *       mmq_queue *queue;
 *       mmq_message *message;
 *       mmq_status status;
 *       char text[512];
 *       if (mmq_open("spool", NULL, &queue) != MMQ_OK) return 1;
 *       if (mmq_enqueue(queue, "hello", 5, NULL) != MMQ_OK) return 1;
 *       while ((status = mmq_dequeue(queue, &message)) == MMQ_OK || status == MMQ_GAP) {
 *         if (status == MMQ_GAP) { // damaged messages, for instance: reported once; what lies behind them still comes
 *           mmq_last_error(text, sizeof text);
 *           fprintf(stderr, "%s\n", text);
 *           continue;
 *         }
 *         printf("%.*s\n", (int)mmq_message_len(message), (const char *)mmq_message_data(message));
 *         mmq_message_free(message);
 *       }
 *       if (status != MMQ_EMPTY) return 1; // mmq_last_error says why
 *       return mmq_close(queue) == MMQ_OK ? 0 : 1;
 *     }
 *
 * THE CONTRACT
 *
 * Status. Functions that can fail return an mmq_status. MMQ_OK is 0. 1 to 15 are ordinary answers,
 * not failures: MMQ_EMPTY, MMQ_TIMED_OUT, MMQ_BUFFER_TOO_SMALL, MMQ_GAP. 16 and above are errors:
 * nothing was changed unless the function says otherwise, and the queue goes on working unless the
 * status is MMQ_POISONED, MMQ_CLOSED or MMQ_FORKED. Numbers never change; later versions may add
 * some. mmq_last_error gives this thread's last error in full; like errno, it is not changed by
 * calls that succeed. errno itself means nothing after a call, and may have changed.
 *
 * Gaps. Some messages will never come: damaged, lost by a power cut, dropped, too old, or rejected.
 * MMQ_GAP reports them once to each consumer, where they would have come; mmq_last_gap has the
 * numbers, mmq_last_error the text. The next read goes on behind them, so do not end a loop at
 * MMQ_GAP: while (mmq_dequeue(...) == MMQ_OK) takes the first damaged message for an empty queue
 * and leaves all the rest unread. The loop of the program above does it right.
 *
 * Outputs. They are written when a call returns MMQ_OK, and left as they were otherwise. The one
 * exception is the length with MMQ_BUFFER_TOO_SMALL.
 *
 * Invalid arguments. NULL where it is not allowed, an impossible count and an unknown number for an
 * enum are answered MMQ_INVALID_ARGUMENT, never by a crash. So is a handle of another kind, and a
 * handle that was closed or freed, as long as fewer than 32 others of its kind were closed or freed
 * after it (for messages: by the same thread). That check helps to find bugs; it is no promise.
 *
 * Ownership. A handle from mmq_options_new goes to mmq_options_free; from mmq_open to mmq_close;
 * from mmq_peek, mmq_dequeue and the like to mmq_message_free; from mmq_consumer_open and _fork to
 * mmq_consumer_free; from mmq_receive and the like to mmq_delivery_ack, _nack, _nack_after, _reject
 * or _free; from mmq_iter_open to mmq_iter_free; from mmq_lanes_open to mmq_lanes_free. Functions
 * named close or free do nothing with NULL. Text that a function returns (mmq_path,
 * mmq_consumer_name) is lent until its handle is closed or freed. The program never has to call
 * free() or delete on memory of the library. Once a call returns, the library does not need the
 * memory that the caller passed in.
 *
 * Messages. The bytes of an mmq_message are lent in place where they lie in one piece in mapped
 * memory, and are the library's copy otherwise. They stay valid and unchanged until
 * mmq_message_free: over later calls, over mmq_close, in any thread. Do not write to them. A queue
 * with a cap on mapped arenas lends from a bounded number of arenas and copies from then on, so
 * holding many messages for long costs copies, never failure. Handles are used again: once a thread
 * has freed some, mmq_peek and mmq_dequeue allocate nothing for a lent message, and only the bytes
 * for a copied one. The _into functions copy into the caller's buffer and allocate nothing, except
 * for a message in several pieces.
 *
 * Threads. Any thread may call any function on the same handle at the same time, except that no
 * thread may close or free a handle while another thread uses it. A message that one thread took
 * may be read and freed by another.
 *
 * Processes. One process at a time owns a queue; a second opener is answered MMQ_LOCKED. The lock
 * dies with its holder, so there is nothing to clean up after a crash. After fork() the child
 * cannot use its parent's queue (MMQ_FORKED). It may free all handles, also messages and
 * deliveries, but must not read the bytes of a message or a delivery that was taken before the
 * fork: the parent uses their space again. Copy what the child is to read before the fork. A child
 * may open queues of its own, whatever the parent's threads did at the fork (on other systems than
 * Linux: if none of them waited in a call of mmq).
 *
 * Signals. Do not call any function from a signal handler. The library installs no handler, and
 * restarts interrupted system calls. If another program truncates the queue's files while they are
 * mapped, the kernel answers with SIGBUS.
 *
 * Panics. A panic or another bug of the library never crosses into C: the call answers MMQ_PANIC,
 * after a line on standard error. No function calls back into the program, so no C++ exception and
 * no longjmp can pass through the library.
 *
 * Full disk. It is an answer (MMQ_FULL), never a signal: nothing was changed, and the call works
 * again when there is space. (The exception is a copy that shares extents, made on xfs while the
 * queue was open: copy a closed queue, or with cp --reflink=never.) Reading and giving space back
 * need no space. mmq_flush and mmq_close need none on ext4, xfs and tmpfs. On file systems that
 * copy what is overwritten (btrfs, and others that may) they can answer MMQ_FULL: then the enqueued
 * messages are still there, but places of consumers could not be written. The places wait in
 * memory, and mmq_flush works again when there is space. If the queue is closed or the process dies
 * before that, messages that were taken come again.
 *
 * Failed flush. The call that flushed reports it (MMQ_IO). If that was a read or the timer, the
 * next call that writes reports it (MMQ_POISONED). Messages written since the last flush that
 * succeeded may never reach the disk. A failed flush takes nothing back: an enqueued message stays
 * in the queue (to enqueue it again would make two of it) but may not survive a power cut, and a
 * message that was taken is handed over. Writing is refused until the queue is opened again;
 * reading goes on.
 *
 * Units. Sizes are bytes, times are milliseconds, sequence numbers count from 0. With a time to
 * wait of 0 a call does not wait, with one below 0 it waits for ever.
 *
 * Only in Rust. Futures need a Rust executor: mmq_ready_fd serves event loops instead.
 *
 * What survives what. A message whose mmq_enqueue returned survives the death of the process at any
 * instruction, and a power cut once a flush has covered it (mmq_flush, mmq_wait_durable, mmq_close,
 * mmq_options_set_flush_every_ops and _ms). After the death of the process a consumer goes on
 * exactly where it was, after a power cut at or behind its last flushed place. Every message is
 * checked before it is delivered; damaged and lost messages are reported once as MMQ_GAP, where
 * they would have come.
 */


#ifndef MMQ_H
#define MMQ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** The version this header belongs to. mmq_version tells the running library's. */
#define MMQ_VERSION_MAJOR 0
#define MMQ_VERSION_MINOR 1
#define MMQ_VERSION_PATCH 0


/**
 * What a call answers. 0 is success, 1 to 15 are ordinary answers, 16 and above are errors. The
 * numbers never change; later versions may add some, so treat an unknown number from 16 on as an
 * error.
 */
enum mmq_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /** Done. */
  MMQ_OK = 0,
  /** There is no message (or no gap) to give. */
  MMQ_EMPTY = 1,
  /** The buffer is too small for the message: its length was written, nothing was consumed. */
  MMQ_BUFFER_TOO_SMALL = 2,
  /** No message came in time. */
  MMQ_TIMED_OUT = 3,
  /**
   * Messages are missing here and will never come. One read reports it, and the next one goes on
   * behind them: do not end a loop of reads here. See mmq_last_gap.
   */
  MMQ_GAP = 4,
  /**
   * An argument is invalid: NULL where it is not allowed, a handle that is closed or of another
   * kind, an unknown number for an enum, a bad consumer name.
   */
  MMQ_INVALID_ARGUMENT = 16,
  /** An option has an invalid value; mmq_last_error names it. mmq_open checks the options. */
  MMQ_INVALID_OPTION = 17,
  /** The message is longer than this queue, or any queue, can hold. */
  MMQ_MESSAGE_TOO_LARGE = 18,
  /**
   * There is no room: a limit of the queue is reached, or the disk is full. Nothing was changed;
   * the call works again when there is space.
   */
  MMQ_FULL = 19,
  /** The queue is open already, in this process or in another. */
  MMQ_LOCKED = 20,
  /** There is no queue, consumer or message of that name or number. */
  MMQ_NOT_FOUND = 21,
  /** A later version of mmq wrote the files. They were not touched. */
  MMQ_UNSUPPORTED_FORMAT = 22,
  /** The operating system refused a call; mmq_last_error says which, and on what file. */
  MMQ_IO = 23,
  /**
   * An earlier flush failed: writing is refused until the queue is opened again. Reading goes
   * on.
   */
  MMQ_POISONED = 24,
  /** The queue was closed: its consumers' handles can only be freed. */
  MMQ_CLOSED = 25,
  /** The queue was opened before a fork, and this is the child: it cannot use its parent's queue. */
  MMQ_FORKED = 26,
  /**
   * The lease of the delivery had ended: its message comes, or came, to another worker. Nothing
   * was changed.
   */
  MMQ_EXPIRED = 27,
  /**
   * The call waited, and mmq_interrupt ended the wait: nothing was changed, and the call may be
   * made again.
   */
  MMQ_INTERRUPTED = 28,
  /**
   * The directory holds files, but none of a queue. It was left as it is; mmq_last_error names
   * one of the files.
   */
  MMQ_NOT_A_QUEUE = 29,
  /**
   * A bug in mmq: a panic, or an invariant that does not hold. The queue can still be used;
   * please report mmq_last_error's text.
   */
  MMQ_PANIC = 31,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum mmq_status mmq_status;
#else
typedef int32_t mmq_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/** Why messages are missing. Later versions may add causes. */
enum mmq_gap_cause
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /** The bytes that held them are not what was written: a damaged, replaced or missing file. */
  MMQ_GAP_DAMAGED = 1,
  /** They had not been flushed when the machine lost power. */
  MMQ_GAP_UNFLUSHED = 2,
  /**
   * They were given up to make room (MMQ_DROP_OLDEST). The gap counts all numbers given up, also
   * those among them that were lost or only reserved before.
   */
  MMQ_GAP_DROPPED = 3,
  /** They were older than the maximum age. Counted as for MMQ_GAP_DROPPED. */
  MMQ_GAP_EXPIRED = 4,
  /**
   * This consumer rejected the message, or was handed it in vain as often as it may be, and has
   * no queue for dead letters (mmq_consumer_set_redelivery).
   */
  MMQ_GAP_REJECTED = 5,
  /**
   * The numbers were reserved when the machine lost power, or when the process died and another
   * mount sees the queue. Probably no messages are missing: none is known to have had one of
   * them. But what says so may be lost together with messages that were not flushed. The numbers
   * stay unused, so that none is given out twice.
   */
  MMQ_GAP_RESERVED = 6,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum mmq_gap_cause mmq_gap_cause;
#else
typedef int32_t mmq_gap_cause;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/** In which order what was left behind is read. */
enum mmq_backlog_order
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /** As it was put in. The default. */
  MMQ_OLDEST_FIRST = 0,
  /**
   * The stretch that was left behind last, then the one before it. Within a stretch messages
   * come as they were put in.
   */
  MMQ_NEWEST_STRETCH_FIRST = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum mmq_backlog_order mmq_backlog_order;
#else
typedef int32_t mmq_backlog_order;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/** How the library decides that a message is no longer fresh. */
enum mmq_fresh
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /** Messages are fresh until mmq_lanes_jump. The default. */
  MMQ_FRESH_MANUAL = 0,
  /**
   * A message is fresh for so many milliseconds after it was put in, and at most an eighth
   * longer. From mmq_lanes_open on the queue remembers, in memory and to an eighth of this time,
   * when messages were put in. Those of this opening that were there before may count as younger
   * than they are; those of an earlier opening are the backlog's.
   */
  MMQ_FRESH_AGE = 1,
  /** A message is fresh as long as it is among the last so many numbers. */
  MMQ_FRESH_MESSAGES = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum mmq_fresh mmq_fresh;
#else
typedef int32_t mmq_fresh;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/** What mmq_enqueue does when there is no room for a message. */
enum mmq_on_full
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /** Answer MMQ_FULL. The default. */
  MMQ_REJECT = 0,
  /** Wait until there is room. */
  MMQ_WAIT = 1,
  /**
   * Give up the oldest messages. Every consumer that had not read them gets a gap of cause
   * MMQ_GAP_DROPPED.
   */
  MMQ_DROP_OLDEST = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum mmq_on_full mmq_on_full;
#else
typedef int32_t mmq_on_full;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/** Where a new consumer begins. */
enum mmq_start
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /** At the oldest message held. */
  MMQ_START_OLDEST = 0,
  /** Behind the newest message. */
  MMQ_START_END = 1,
  /** At the message with a given sequence number; at the next one where it is not held. */
  MMQ_START_SEQ = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum mmq_start mmq_start;
#else
typedef int32_t mmq_start;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * A consumer: a named place in a queue, which is stored. Handles of the same consumer share its
 * place: each message goes to exactly one of them. Consumers of different names each see every
 * message.
 */
typedef struct mmq_consumer mmq_consumer;

/** A message that was handed out and not yet acknowledged. */
typedef struct mmq_delivery mmq_delivery;

/** A look ahead over the messages of a queue or a consumer, which consumes nothing. */
typedef struct mmq_iter mmq_iter;

/**
 * Two lanes over one consumer: fresh messages in order, as they come, and beside them the backlog,
 * in order too. For what is sent over a link that may be down: after an outage the newest messages
 * go first, and what waited is sent beside them. Nothing is sent twice, and nothing is forgotten,
 * over any number of outages and openings.
 *
 * When the next message of the fresh lane is not fresh any more (mmq_lane_options), the lane jumps
 * to the end of the queue. What waited becomes a stretch of the backlog. A message that was handed
 * out before the jump and comes again is the backlog's too.
 *
 * Nothing is stored but what acknowledgements store (mmq_delivery_ack): after an opening, lanes
 * begin with what lies between acknowledged messages as the backlog. So each stretch that is not
 * finished costs a range: with more of them than mmq_delivery_ack says, what was acknowledged
 * between the oldest of them comes again after an opening, as the backlog's. The queue holds all
 * messages from the oldest one of the backlog on.
 */
typedef struct mmq_lanes mmq_lanes;

/**
 * A message that was taken or looked at. Its bytes are lent in place where that is possible. Free
 * it with mmq_message_free.
 */
typedef struct mmq_message mmq_message;

/**
 * How a queue is opened. mmq_options_new makes the options, mmq_options_set_... change them,
 * mmq_open takes them.
 */
typedef struct mmq_options mmq_options;

/** An open queue. */
typedef struct mmq_queue mmq_queue;

/** Bytes that the caller lends for the length of a call. */
typedef struct mmq_slice {
  /** The first byte; may be NULL when len is 0. */
  const void *data;
  /** How many bytes. */
  size_t len;
} mmq_slice;

/** A range of sequence numbers that will never come, and why. */
typedef struct mmq_gap {
  /** The first missing sequence number. */
  uint64_t first;
  /** The last missing sequence number. */
  uint64_t last;
  /** Why they are missing. */
  mmq_gap_cause cause;
} mmq_gap;

/**
 * How lanes are read. Set to zero (mmq_lane_options options = {0}; in C++ {}), each field is the
 * default.
 */
typedef struct mmq_lane_options {
  /** How the library decides that a message is no longer fresh. */
  mmq_fresh fresh;
  /**
   * How long a message is fresh: milliseconds with MMQ_FRESH_AGE, messages with
   * MMQ_FRESH_MESSAGES, at least 1. With MMQ_FRESH_MANUAL it is not looked at.
   */
  int64_t fresh_within;
  /**
   * While both lanes have messages: so many of the fresh one, then share_backlog of the backlog.
   * While one lane has none, the other gets all. Both 0: the default, 4 to 1.
   */
  uint32_t share_fresh;
  /** See share_fresh. With 1 to 0 the backlog gets what the fresh lane leaves. */
  uint32_t share_backlog;
  /**
   * The most messages of the backlog in a second. 0: no limit. A message that is held back waits
   * all the same: the descriptor of mmq_consumer_ready_fd is readable.
   */
  uint64_t backlog_rate;
  /** In which order what was left behind is read. */
  mmq_backlog_order order;
} mmq_lane_options;

/** Numbers that were left behind in one piece: those from first on that are below end. */
typedef struct mmq_stretch {
  /** The first sequence number. */
  uint64_t first;
  /** The sequence number behind the last one. */
  uint64_t end;
} mmq_stretch;

/**
 * Where a dead letter comes from. Later versions append fields: set struct_size to
 * sizeof(mmq_origin) before every call of mmq_message_origin and mmq_delivery_origin.
 */
typedef struct mmq_origin {
  /**
   * In: the caller's sizeof(mmq_origin). Out: how many bytes were filled; fields behind them are
   * as they were.
   */
  size_t struct_size;
  /** The id of the queue in which the message was put: mmq_queue_id. */
  uint8_t queue_id[16];
  /** Its sequence number there. */
  uint64_t seq;
  /** How often it was handed out there without being acknowledged. */
  uint32_t attempts;
  /** 0. */
  uint32_t reserved;
} mmq_origin;

/**
 * Figures of a queue. They are read one by one while other threads go on: each is right at a
 * moment of its own, and no message is counted as taken that is not counted as enqueued. Totals
 * count from this opening of the queue on. Later versions append fields: set struct_size to
 * sizeof(mmq_stats) before every call of mmq_read_stats.
 */
typedef struct mmq_stats {
  /**
   * In: the caller's sizeof(mmq_stats). Out: how many bytes were filled; fields behind them are
   * as they were.
   */
  size_t struct_size;
  /**
   * Messages that wait for the default consumer; where there is none, those that any consumer
   * has yet to deal with; without any consumer, all messages held.
   */
  uint64_t messages;
  /** Bytes of the segments that those messages take, headers included. */
  uint64_t bytes;
  /** Segments that hold messages. */
  uint64_t segments;
  /** Drained segments kept for reuse. */
  uint64_t spare_segments;
  /** Arenas mapped now: the bytes mapped, in arenas, rounded up. */
  uint64_t mapped_arenas;
  /** Bytes mapped now, without the index file. */
  uint64_t mapped_bytes;
  /**
   * Bytes of disk taken, every file counted, also removed files that a held message, an iterator
   * or a consumer still reads from. So this may be above max_bytes, which limits the files in
   * the directory.
   */
  uint64_t disk_bytes;
  /** The sequence number the next message will get. */
  uint64_t next_seq;
  /** The first sequence number still held. */
  uint64_t oldest_seq;
  /** The first sequence number not yet known to be durable. */
  uint64_t durable_seq;
  /** Messages enqueued since the queue was opened. */
  uint64_t enqueued;
  /** Messages that all consumers have taken or skipped since the queue was opened. */
  uint64_t dequeued;
  /** Consumers that exist, the default one included. */
  uint64_t consumers;
  /** Gaps reported to consumers since the queue was opened. */
  uint64_t gaps;
  /**
   * Sequence numbers in those gaps, without those that were only reserved (reserved_numbers).
   * Those may hold lost messages, too, which were not flushed before a power cut.
   */
  uint64_t lost_messages;
  /** Lost messages whose bytes were damaged. */
  uint64_t lost_damaged;
  /** Lost messages that a power cut took. */
  uint64_t lost_unflushed;
  /** Numbers given up to make room. */
  uint64_t lost_dropped;
  /** Numbers given up because they were too old. */
  uint64_t lost_expired;
  /** Flushes of messages since the queue was opened. */
  uint64_t flushes;
  /** Time that those flushes took, in nanoseconds. */
  uint64_t flush_ns;
  /**
   * 1 when a flush has failed and writing is refused (mmq_flush then answers MMQ_POISONED, and
   * mmq_last_error has the reason); else 0.
   */
  uint64_t poisoned;
  /**
   * The age of the oldest message that waits for the default consumer, at most, in milliseconds;
   * 0 when no message waits.
   */
  uint64_t oldest_age_ms;
  /**
   * Sequence numbers in the gaps that were only reserved before a power cut: probably no message
   * ever had them.
   */
  uint64_t reserved_numbers;
  /** Time that the longest flush took, in nanoseconds. */
  uint64_t longest_flush_ns;
  /** Calls that put messages in and were refused because the queue or the disk was full. */
  uint64_t refused;
  /**
   * Time that such calls waited for room, all together, in nanoseconds (MMQ_WAIT): those that
   * then found some too.
   */
  uint64_t wait_ns;
  /**
   * Messages dropped to make room since the queue was opened that some consumer had yet to read:
   * counted once each, when it happens, and not only when it is reported to a consumer.
   */
  uint64_t dropped;
  /** Likewise, messages that were too old. */
  uint64_t expired;
  /**
   * Messages that were rejected since the queue was opened (mmq_delivery_reject, and the most
   * attempts of mmq_set_redelivery): for the dead letters, or given up. Each counts when it
   * happens.
   */
  uint64_t rejected;
  /** Lost messages that were given up because they were rejected. */
  uint64_t lost_rejected;
  /**
   * Messages given up since the queue was opened because the first consumer was made behind
   * them, and no consumer had claimed them (mmq_consumer_open_at). They count when that consumer
   * is made; they go when their segments do.
   */
  uint64_t unclaimed;
} mmq_stats;

/**
 * Figures of one consumer, counted as those of mmq_stats. Later versions append fields: set
 * struct_size to sizeof(mmq_consumer_stats) before every call of mmq_consumer_read_stats.
 */
typedef struct mmq_consumer_stats {
  /**
   * In: the caller's sizeof(mmq_consumer_stats). Out: how many bytes were filled; fields behind
   * them are as they were.
   */
  size_t struct_size;
  /**
   * The consumer's place: every message below it is done (taken, acknowledged, reported as
   * missing, or passed over by a seek).
   */
  uint64_t next_seq;
  /**
   * Messages that wait for the consumer: those it has neither taken nor acknowledged, messages
   * in flight included.
   */
  uint64_t messages;
  /**
   * Bytes of the segments from the oldest of these messages on, headers and what is acknowledged
   * between them included.
   */
  uint64_t bytes;
  /** Messages received, neither acknowledged nor given back. */
  uint64_t in_flight;
  /**
   * The age of the oldest message that waits, at most, in milliseconds: the time since its
   * segment was begun. 0 when no message waits.
   */
  uint64_t oldest_age_ms;
} mmq_consumer_stats;

/**
 * A queue as it is seen from outside: mmq_inspect. All figures are of one moment, but for
 * disk_bytes. Later versions append fields: set struct_size to sizeof(mmq_inspection) before every
 * call of mmq_inspect.
 */
typedef struct mmq_inspection {
  /**
   * In: the caller's sizeof(mmq_inspection). Out: how many bytes were filled; fields behind them
   * are as they were.
   */
  size_t struct_size;
  /**
   * 0: a process has the queue open. 1: it was closed. 2: its process died; nothing was lost,
   * and the figures are exact. 3: the machine lost power, or the index is lost; the figures are
   * those of what the next opening will find. 4: nothing was ever put in.
   */
  int state;
  /** The process that has the queue open; 0 when nobody has. */
  uint32_t owner_pid;
  /** The sequence number the next message will get. */
  uint64_t next_seq;
  /** The first sequence number still held. */
  uint64_t oldest_seq;
  /** The first sequence number not yet known to be durable. */
  uint64_t durable_seq;
  /**
   * Messages that wait for the default consumer; where there is none, those that any consumer
   * has yet to deal with; without any consumer, all messages held.
   */
  uint64_t messages;
  /** Bytes of the segments that those messages take, headers included. */
  uint64_t bytes;
  /** Bytes of disk that all files in the directory take. */
  uint64_t disk_bytes;
  /** Segments that hold messages. */
  uint64_t segments;
  /** Drained segments kept for reuse. */
  uint64_t spare_segments;
  /** Consumers that exist, the default one included once it has read. */
  uint64_t consumers;
  /** 1 when a flush of the process that has the queue has failed, and writing is refused; else 0. */
  uint64_t poisoned;
  /** The queue's id, random, given when it was created. */
  uint8_t queue_id[16];
} mmq_inspection;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of the running library, as "MAJOR.MINOR.PATCH". MMQ_VERSION_MAJOR, _MINOR and _PATCH
 * are those of the header that the program was compiled with.
 *
 * @return Static text, never NULL.
 */
const char *mmq_version(void);

/**
 * What a status means, in a few words. mmq_last_error says more about a particular failure.
 *
 * @param status Any number; an unknown one has a text too.
 * @return Static text, never NULL.
 */
const char *mmq_status_message(mmq_status status);

/**
 * The last error of this thread in full: what was tried, on which file, and the system's error.
 * UTF-8, at most 5120 bytes. The text is that of this thread's latest call that answered MMQ_GAP
 * or an error (16 and above), or that returns no status and was given no live handle. Calls that
 * succeed leave it as it is, like errno. Empty when there was no error.
 *
 * @param buf Where the text goes, cut off where it does not fit, and always ended by a zero byte.
 *   NULL to ask for the length.
 * @param cap Size of buf in bytes.
 * @return Length of the whole text in bytes, without the zero byte.
 */
size_t mmq_last_error(char *buf, size_t cap);

/**
 * Makes an object with the default options. Free it with mmq_options_free; a queue that was opened
 * with it does not need it any more.
 *
 * @return The options; NULL only after a bug in mmq (see MMQ_PANIC).
 */
struct mmq_options *mmq_options_new(void);

/**
 * Frees options.
 *
 * @param options From mmq_options_new, or NULL.
 */
void mmq_options_free(struct mmq_options *options);

/**
 * Size of an arena, the unit of the memory cap, and the length of the longest segment file.
 * Default 134217728 (128 MiB). It may differ at every opening. Segments are short (2 MiB) while
 * consumers have little to read, and grow with what they have to read: a queue that is nearly
 * empty stays small whatever its arena size.
 *
 * @param options Not NULL.
 * @param bytes A multiple of the OS page, 4096 to 1073741824 (checked by mmq_open).
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_options_set_arena_size(struct mmq_options *options, uint64_t bytes);

/**
 * How many arenas may be mapped at a time. Default 3. Mapped memory stays within this times the
 * arena size, whatever the backlog.
 *
 * @param options Not NULL.
 * @param arenas At least 3, or 0 for no cap (checked by mmq_open).
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_options_set_max_mapped_arenas(struct mmq_options *options, uint32_t arenas);

/**
 * Flush after every so many operations (messages in, messages out). Default 0, off. The operation
 * that completes the number returns once the flush is done. If the flush fails, mmq_enqueue and
 * mmq_delivery_ack return its error; a call that takes a message hands it over all the same, and
 * the next call that writes answers MMQ_POISONED. With 1, every message is durable when
 * mmq_enqueue returns, and consumers see it only then; threads that wait at the same time share
 * one flush.
 *
 * @param options Not NULL.
 * @param operations A number of operations; 0 turns it off.
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_options_set_flush_every_ops(struct mmq_options *options, uint64_t operations);

/**
 * Flush once in every period, from a thread of the queue's own. Default 0, off. A failed flush is
 * reported to the next call that writes.
 *
 * @param options Not NULL.
 * @param ms The period in milliseconds; 0 turns it off.
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_options_set_flush_every_ms(struct mmq_options *options, uint64_t ms);

/**
 * The most bytes of disk that the queue may take, every file counted: messages, index, space
 * allocated ahead. Default 0, no limit.
 *
 * @param options Not NULL.
 * @param bytes At least 65536, or 0 for no limit (checked by mmq_open).
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_options_set_max_bytes(struct mmq_options *options, uint64_t bytes);

/**
 * Space of the file system that the queue leaves free for others. Default 0.
 *
 * @param options Not NULL.
 * @param bytes Bytes.
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_options_set_min_free_bytes(struct mmq_options *options, uint64_t bytes);

/**
 * What mmq_enqueue does when there is no room for a message. Default MMQ_REJECT.
 *
 * @param options Not NULL.
 * @param policy MMQ_REJECT, MMQ_WAIT or MMQ_DROP_OLDEST.
 * @param wait_ms For MMQ_WAIT: how long to wait, in milliseconds, before answering MMQ_FULL; below
 *   0: for ever. Ignored with the other policies.
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT (also for an unknown policy).
 */
mmq_status mmq_options_set_on_full(struct mmq_options *options,
                                   mmq_on_full policy,
                                   int64_t wait_ms);

/**
 * Messages older than this are given up, and each consumer that had not read them gets a gap of
 * cause MMQ_GAP_EXPIRED. Default 0, never.
 *
 * A message is held for this time at least, and goes at the latest at the first look after an
 * eighth more. A thread of the queue looks every eighth of the time (at least every 30 s, at most
 * every 20 ms); opening looks too. When the disk has no room for another segment, the messages in
 * the last one live longer. A delivery in flight stays valid; when it is given back after its
 * time, its message counts as missing and is reported as a gap.
 *
 * Ages go by the time of day. When the clock is set forward, messages may be given up earlier, by
 * no more than the change. When it is set back, they may stay longer, by no more than the change.
 *
 * @param options Not NULL.
 * @param ms Milliseconds; 0 for no limit.
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_options_set_max_age_ms(struct mmq_options *options, uint64_t ms);

/**
 * The permission bits of the queue's files: who else may look at it (read), or open it (write).
 * The directory gets the same, and x for each that may read: 0750 for files of 0640. Default 0: a
 * new queue has the bits that the umask leaves of 0666, its directory those that it leaves of
 * 0777, and a queue that is there goes on with those of its files, whatever the umask is. With a
 * mode the umask does not matter, and a queue that is there gets the mode when it is opened;
 * mmq_open answers MMQ_IO when one of its files is another user's and has other bits.
 *
 * @param options Not NULL.
 * @param bits Within 0666, with the owner's 0600, in octal: 0640; or 0 for the default (checked by
 *   mmq_open).
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_options_set_mode(struct mmq_options *options, uint32_t bits);

/**
 * Whether a queue that does not exist is created, with its directory and the directories above it.
 * Default true; with false, opening it answers MMQ_NOT_FOUND.
 *
 * @param options Not NULL.
 * @param create True or false.
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_options_set_create(struct mmq_options *options, bool create);

/**
 * Opens the queue in a directory, and creates a missing one (see mmq_options_set_create). Opening
 * takes milliseconds whatever the backlog, also after a crash: see "What survives what" at the
 * top.
 *
 * @param dir Path of the directory: not NULL, not empty, any bytes a path may have. The directory
 *   belongs to the queue.
 * @param options How to open it; NULL for the defaults. Not needed any more once the call returns.
 * @param out Where the queue goes. Not NULL. Close it with mmq_close.
 * @return MMQ_OK, MMQ_INVALID_OPTION, MMQ_LOCKED (mmq_last_error names the holder's process),
 *   MMQ_NOT_FOUND (only with create set to false), MMQ_NOT_A_QUEUE (the directory holds files, but
 *   none of a queue; it was left as it is), MMQ_UNSUPPORTED_FORMAT, MMQ_FULL, MMQ_IO,
 *   MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_open(const char *dir, const struct mmq_options *options, struct mmq_queue **out);

/**
 * Makes everything durable, closes the files and frees the handle, whatever is returned. No other
 * thread may be in a call with this very handle. Threads that wait in a call of one of the queue's
 * consumers get MMQ_CLOSED; handles of consumers can only be freed from now on. Messages stay
 * readable until they are freed. Rejected messages that can go to their queue for dead letters go
 * first; after five seconds no more begin to go.
 *
 * @param queue The queue, or NULL.
 * @return MMQ_OK; MMQ_IO or MMQ_FULL (see "Full disk" at the top) when this last flush failed,
 *   MMQ_POISONED when an earlier one had failed: enqueued messages survive the process all the
 *   same; MMQ_INVALID_ARGUMENT when it is not a live handle.
 */
mmq_status mmq_close(struct mmq_queue *queue);

/**
 * Puts a message at the tail. Once the call has returned MMQ_OK, the message survives the death of
 * the process; it survives a power cut once a flush has covered it.
 *
 * @param queue Not NULL.
 * @param data The bytes, which are copied. May be NULL when len is 0: a message may be empty.
 * @param len Bytes; at most 4294967295.
 * @param seq_out Where the sequence number goes. May be NULL.
 * @return MMQ_OK; MMQ_FULL (also after waiting, with MMQ_WAIT), MMQ_MESSAGE_TOO_LARGE,
 *   MMQ_POISONED, MMQ_IO, MMQ_FORKED, MMQ_INVALID_ARGUMENT: nothing was changed. With
 *   mmq_options_set_flush_every_ops MMQ_IO may come from the flush instead: then the message is in
 *   the queue, mostly the queue is poisoned, and the text of mmq_last_error says "cannot flush".
 */
mmq_status mmq_enqueue(struct mmq_queue *queue, const void *data, size_t len, uint64_t *seq_out);

/**
 * Puts all messages of an array at the tail, or none, also when a crash intervenes.
 *
 * @param queue Not NULL.
 * @param messages The messages, whose bytes are copied. May be NULL when count is 0.
 * @param count How many.
 * @param first_seq_out Where the sequence number of the first goes (the others follow without a
 *   gap); with no messages, the number the next message will get. May be NULL.
 * @return As mmq_enqueue: none of the messages is in the queue, or, after a failed flush, all are.
 */
mmq_status mmq_enqueue_batch(struct mmq_queue *queue,
                             const struct mmq_slice *messages,
                             size_t count,
                             uint64_t *first_seq_out);

/**
 * Puts one message at the tail whose bytes lie in several buffers, in their order.
 *
 * @param queue Not NULL.
 * @param parts The buffers, whose bytes are copied. May be NULL when count is 0 (a message of no
 *   bytes).
 * @param count How many.
 * @param seq_out Where the sequence number goes. May be NULL.
 * @return As mmq_enqueue; MMQ_MESSAGE_TOO_LARGE also when the parts are too long together.
 */
mmq_status mmq_enqueue_parts(struct mmq_queue *queue,
                             const struct mmq_slice *parts,
                             size_t count,
                             uint64_t *seq_out);

/**
 * Looks at the next message, which stays in the queue. The first read makes the queue's own
 * (default) consumer, at the oldest message held.
 *
 * @param queue Not NULL.
 * @param out Where the message goes; free it with mmq_message_free. Not NULL.
 * @return MMQ_OK, MMQ_EMPTY, MMQ_GAP, MMQ_FULL (only from the very first read: no room for the
 *   queue's own consumer), MMQ_IO, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_peek(struct mmq_queue *queue, struct mmq_message **out);

/**
 * Takes the next message. Once the call has returned, the message does not come again after the
 * death of the process; after a power cut, messages taken since the last flush may come again.
 * MMQ_IO means that no message was taken. When a flush that the options ask for fails after the
 * read, the message is handed over all the same, and the next call that writes answers
 * MMQ_POISONED.
 *
 * @param queue Not NULL.
 * @param out Where the message goes; free it with mmq_message_free. Not NULL.
 * @return As mmq_peek.
 */
mmq_status mmq_dequeue(struct mmq_queue *queue, struct mmq_message **out);

/**
 * Takes the next message, and waits for it. Does not poll.
 *
 * @param queue Not NULL.
 * @param timeout_ms Milliseconds to wait; 0: not at all; below 0: for ever.
 * @param out Where the message goes; free it with mmq_message_free. Not NULL.
 * @return As mmq_dequeue, but MMQ_TIMED_OUT where that answers MMQ_EMPTY; MMQ_INTERRUPTED by
 *   mmq_interrupt.
 */
mmq_status mmq_dequeue_timeout(struct mmq_queue *queue,
                               int64_t timeout_ms,
                               struct mmq_message **out);

/**
 * Looks at the next message, which stays in the queue, and copies it.
 *
 * @param queue Not NULL.
 * @param buf Where the bytes go; with a status that tells of an error, MMQ_BUFFER_TOO_SMALL apart,
 *   its content says nothing. May be NULL when cap is 0.
 * @param cap Size of buf in bytes.
 * @param len_out Where the length of the message goes, also with MMQ_BUFFER_TOO_SMALL. Not NULL.
 * @param seq_out Where the sequence number goes. May be NULL.
 * @return As mmq_peek; MMQ_BUFFER_TOO_SMALL (buf is unchanged).
 */
mmq_status mmq_peek_into(struct mmq_queue *queue,
                         void *buf,
                         size_t cap,
                         size_t *len_out,
                         uint64_t *seq_out);

/**
 * Takes the next message and copies it. A message that does not fit is not taken: its length is
 * written to len_out, and the message comes with the next call.
 *
 * @param queue Not NULL.
 * @param buf Where the bytes go; with a status that tells of an error, MMQ_BUFFER_TOO_SMALL apart,
 *   its content says nothing. May be NULL when cap is 0.
 * @param cap Size of buf in bytes.
 * @param len_out Where the length of the message goes, also with MMQ_BUFFER_TOO_SMALL. Not NULL.
 * @param seq_out Where the sequence number goes. May be NULL.
 * @return As mmq_dequeue; MMQ_BUFFER_TOO_SMALL (no message was taken, buf is unchanged).
 */
mmq_status mmq_dequeue_into(struct mmq_queue *queue,
                            void *buf,
                            size_t cap,
                            size_t *len_out,
                            uint64_t *seq_out);

/**
 * Takes up to max messages, as many as there are, without waiting.
 *
 * @param queue Not NULL.
 * @param out An array of max places, where the messages go; free each with mmq_message_free. May
 *   be NULL when max is 0.
 * @param max How many to take at most.
 * @param count_out Where their number goes. Not NULL.
 * @return As mmq_dequeue; MMQ_OK means at least one message, unless max is 0. A gap or an error
 *   behind the first message comes with the next call.
 */
mmq_status mmq_dequeue_batch(struct mmq_queue *queue,
                             struct mmq_message **out,
                             size_t max,
                             size_t *count_out);

/**
 * Takes the next message without delivering it. Its bytes are neither read nor checked.
 *
 * @param queue Not NULL.
 * @param seq_out Where the sequence number goes. May be NULL.
 * @return As mmq_dequeue.
 */
mmq_status mmq_skip(struct mmq_queue *queue, uint64_t *seq_out);

/**
 * The gap of the latest MMQ_GAP that a read through this handle answered to this thread, or, if
 * there was none, to any thread.
 *
 * @param queue Not NULL.
 * @param out Where the gap goes. Not NULL.
 * @return MMQ_OK, MMQ_EMPTY when there was none, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_last_gap(struct mmq_queue *queue, struct mmq_gap *out);

/**
 * The directory of a queue, as it was given to mmq_open.
 *
 * @param queue Not NULL.
 * @return Text, valid until mmq_close. NULL when queue is not a live handle.
 */
const char *mmq_path(const struct mmq_queue *queue);

/**
 * How many messages wait for the queue's own (default) consumer, those in flight included. Where
 * there is none, how many any consumer has yet to deal with; without any consumer, how many are
 * held.
 *
 * @param queue Not NULL.
 * @param out Where the number goes. Not NULL.
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_len(const struct mmq_queue *queue, uint64_t *out);

/**
 * Whether no message waits for the queue's own (default) consumer.
 *
 * @param queue Not NULL.
 * @param out Where the answer goes. Not NULL.
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_is_empty(const struct mmq_queue *queue, bool *out);

/**
 * Makes durable what was enqueued and taken before: once the call has returned MMQ_OK, it survives
 * a power cut. Threads that flush at the same time share one sync.
 *
 * @param queue Not NULL.
 * @return MMQ_OK; MMQ_IO when a sync failed: all writing answers MMQ_POISONED until the queue is
 *   opened again; MMQ_FULL (on file systems that copy what is overwritten: see "Full disk" at the
 *   top): the next mmq_flush tries again; MMQ_POISONED (mmq_last_error has the reason),
 *   MMQ_FORKED, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_flush(struct mmq_queue *queue);

/**
 * The first sequence number not yet known to be durable.
 *
 * @param queue Not NULL.
 * @param out Where the number goes. Not NULL.
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_durable_seq(const struct mmq_queue *queue, uint64_t *out);

/**
 * Returns once a message is durable; flushes when it is not yet. Threads that wait at the same
 * time share one sync.
 *
 * @param queue Not NULL.
 * @param seq The message's sequence number.
 * @return As mmq_flush, but MMQ_OK for a message that is durable already; MMQ_NOT_FOUND for a
 *   number that was not given out yet; MMQ_INTERRUPTED by mmq_interrupt.
 */
mmq_status mmq_wait_durable(struct mmq_queue *queue, uint64_t seq);

/**
 * The bytes of a message. They stay where they are, unchanged, until mmq_message_free, whatever is
 * done to the queue. A child of a fork must not read them: there they may change at any time.
 *
 * @param message Not NULL.
 * @return The first byte; not to be read when the length is 0. NULL when message is not a live
 *   handle.
 */
const uint8_t *mmq_message_data(const struct mmq_message *message);

/**
 * The length of a message.
 *
 * @param message Not NULL.
 * @return Bytes. 0 when message is not a live handle.
 */
size_t mmq_message_len(const struct mmq_message *message);

/**
 * The sequence number of a message: the one that mmq_enqueue gave it. It is the message's
 * identity, and is never used twice in a queue.
 *
 * @param message Not NULL.
 * @return The number. UINT64_MAX, which no message has, when message is not a live handle.
 */
uint64_t mmq_message_seq(const struct mmq_message *message);

/**
 * Frees a message. Allowed from any thread, and after mmq_close. It does not change what the
 * consumer has taken.
 *
 * @param message From mmq_peek, mmq_dequeue or the like, or NULL.
 */
void mmq_message_free(struct mmq_message *message);

/**
 * Opens the consumer of a name. The first call with a name makes the consumer, at the oldest
 * message still held; its name and place are stored. The queue gives space back when every
 * consumer has passed it.
 *
 * A queue keeps what no consumer has claimed, and the first consumer claims it: open all consumers
 * before the first one reads. (The queue's own consumer, which its first read makes, is one of
 * them.)
 *
 * @param queue Not NULL.
 * @param name 1 to 255 bytes of UTF-8. Not NULL.
 * @param out Where the handle goes; free it with mmq_consumer_free. Not NULL.
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT, MMQ_FULL or MMQ_IO when there is no room for another
 *   consumer, MMQ_FORKED.
 */
mmq_status mmq_consumer_open(struct mmq_queue *queue, const char *name, struct mmq_consumer **out);

/**
 * As mmq_consumer_open, but a consumer that does not exist yet is made where start says, in one
 * step: no message that comes meanwhile is missed or read twice. One that exists stays where it
 * is.
 *
 * A queue keeps what no consumer has claimed, and the first consumer claims it: open all consumers
 * before the first one reads. Made behind the oldest message, the first one gives up the messages
 * before it; mmq_stats.unclaimed counts them.
 *
 * @param queue Not NULL.
 * @param name 1 to 255 bytes of UTF-8. Not NULL.
 * @param start Where a new consumer begins.
 * @param seq The sequence number for MMQ_START_SEQ; otherwise it is not looked at.
 * @param out Where the handle goes; free it with mmq_consumer_free. Not NULL.
 * @return As mmq_consumer_open; MMQ_NOT_FOUND for a number that was not given out yet.
 */
mmq_status mmq_consumer_open_at(struct mmq_queue *queue,
                                const char *name,
                                mmq_start start,
                                uint64_t seq,
                                struct mmq_consumer **out);

/**
 * Makes a new consumer at the place of another one. Messages that the other one has not
 * acknowledged come to the new one too.
 *
 * @param consumer Not NULL.
 * @param name The new consumer's name: 1 to 255 bytes of UTF-8, not taken yet. Not NULL.
 * @param out Where the handle goes; free it with mmq_consumer_free. Not NULL.
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT (also for a name that is taken), MMQ_FULL or MMQ_IO when
 *   there is no room for another consumer, MMQ_CLOSED once the queue was closed, MMQ_FORKED.
 */
mmq_status mmq_consumer_fork(const struct mmq_consumer *consumer,
                             const char *name,
                             struct mmq_consumer **out);

/**
 * Frees a handle. The consumer stays: see mmq_consumer_remove. Allowed after mmq_close.
 *
 * @param consumer From mmq_consumer_open or mmq_consumer_fork, or NULL.
 */
void mmq_consumer_free(struct mmq_consumer *consumer);

/**
 * Removes a consumer: the queue keeps no messages for it any more. Its handles answer
 * MMQ_NOT_FOUND from now on and are freed as usual. It stays removed after the death of the
 * process, and after a power cut once a flush has covered the call. The empty name is that of the
 * queue's own (default) consumer: calls that wait for it answer MMQ_NOT_FOUND, and the next call
 * that reads makes it again, at the oldest message held.
 *
 * @param queue Not NULL.
 * @param name The consumer's name. Not NULL.
 * @return MMQ_OK, MMQ_NOT_FOUND when no consumer has that name, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_consumer_remove(struct mmq_queue *queue, const char *name);

/**
 * As mmq_peek, for this consumer.
 *
 * @param consumer Not NULL.
 * @param out Where the message goes; free it with mmq_message_free. Not NULL.
 * @return As mmq_peek; MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the queue was
 *   closed.
 */
mmq_status mmq_consumer_peek(struct mmq_consumer *consumer, struct mmq_message **out);

/**
 * As mmq_dequeue, for this consumer.
 *
 * @param consumer Not NULL.
 * @param out Where the message goes; free it with mmq_message_free. Not NULL.
 * @return As mmq_dequeue; MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the queue
 *   was closed.
 */
mmq_status mmq_consumer_dequeue(struct mmq_consumer *consumer, struct mmq_message **out);

/**
 * As mmq_dequeue_timeout, for this consumer.
 *
 * @param consumer Not NULL.
 * @param timeout_ms Milliseconds to wait; 0: not at all; below 0: for ever.
 * @param out Where the message goes; free it with mmq_message_free. Not NULL.
 * @return As mmq_dequeue_timeout; MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the
 *   queue was closed, also to a call that waits.
 */
mmq_status mmq_consumer_dequeue_timeout(struct mmq_consumer *consumer,
                                        int64_t timeout_ms,
                                        struct mmq_message **out);

/**
 * As mmq_peek_into, for this consumer.
 *
 * @param consumer Not NULL.
 * @param buf Where the bytes go. May be NULL when cap is 0.
 * @param cap Size of buf in bytes.
 * @param len_out Where the length of the message goes, also with MMQ_BUFFER_TOO_SMALL. Not NULL.
 * @param seq_out Where the sequence number goes. May be NULL.
 * @return As mmq_peek_into; MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the queue
 * was closed.
 */
mmq_status mmq_consumer_peek_into(struct mmq_consumer *consumer,
                                  void *buf,
                                  size_t cap,
                                  size_t *len_out,
                                  uint64_t *seq_out);

/**
 * As mmq_dequeue_into, for this consumer.
 *
 * @param consumer Not NULL.
 * @param buf Where the bytes go. May be NULL when cap is 0.
 * @param cap Size of buf in bytes.
 * @param len_out Where the length of the message goes, also with MMQ_BUFFER_TOO_SMALL. Not NULL.
 * @param seq_out Where the sequence number goes. May be NULL.
 * @return As mmq_dequeue_into; MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the
 * queue was closed.
 */
mmq_status mmq_consumer_dequeue_into(struct mmq_consumer *consumer,
                                     void *buf,
                                     size_t cap,
                                     size_t *len_out,
                                     uint64_t *seq_out);

/**
 * As mmq_skip, for this consumer.
 *
 * @param consumer Not NULL.
 * @param seq_out Where the sequence number goes. May be NULL.
 * @return As mmq_skip; MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the queue was
 *   closed.
 */
mmq_status mmq_consumer_skip(struct mmq_consumer *consumer, uint64_t *seq_out);

/**
 * As mmq_last_gap, for this consumer's handle.
 *
 * @param consumer Not NULL.
 * @param out Where the gap goes. Not NULL.
 * @return MMQ_OK, MMQ_EMPTY when there was none, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_consumer_last_gap(struct mmq_consumer *consumer, struct mmq_gap *out);

/**
 * As mmq_dequeue_batch, for this consumer.
 *
 * @param consumer Not NULL.
 * @param out An array of max places, where the messages go; free each with mmq_message_free. May
 *   be NULL when max is 0.
 * @param max How many to take at most.
 * @param count_out Where their number goes. Not NULL.
 * @return As mmq_dequeue_batch; MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the
 *   queue was closed.
 */
mmq_status mmq_consumer_dequeue_batch(struct mmq_consumer *consumer,
                                      struct mmq_message **out,
                                      size_t max,
                                      size_t *count_out);

/**
 * The name of a consumer.
 *
 * @param consumer Not NULL.
 * @return UTF-8 text, valid until mmq_consumer_free. NULL when consumer is not a live handle.
 */
const char *mmq_consumer_name(const struct mmq_consumer *consumer);

/**
 * The names of all consumers, in the order of their bytes. The queue's own (default) consumer has
 * no name. (A name with a zero byte in it is left out; only a Rust program can have given it.)
 *
 * @param queue Not NULL.
 * @param buf Where the names go, one behind the other, each ended by a zero byte. May be NULL when
 *   cap is 0.
 * @param cap Size of buf in bytes.
 * @param len_out Where the length of all names together goes, in bytes and with the zero bytes,
 *   also with MMQ_BUFFER_TOO_SMALL. Not NULL.
 * @return MMQ_OK, MMQ_BUFFER_TOO_SMALL (buf is as it was), MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_consumers(const struct mmq_queue *queue, char *buf, size_t cap, size_t *len_out);

/**
 * How many messages wait for this consumer, those in flight included.
 *
 * @param consumer Not NULL.
 * @param out Where the number goes. Not NULL.
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_consumer_len(const struct mmq_consumer *consumer, uint64_t *out);

/**
 * Whether no message waits for this consumer, and none is in flight.
 *
 * @param consumer Not NULL.
 * @param out Where the answer goes. Not NULL.
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_consumer_is_empty(const struct mmq_consumer *consumer, bool *out);

/**
 * Moves a consumer to a message, back or forward. The number after the last one leads to the end
 * of the queue, a number within a gap to that gap. Deliveries received before are called off: to
 * acknowledge them or to give them back changes nothing any more.
 *
 * @param consumer Not NULL.
 * @param seq The message's sequence number.
 * @return MMQ_OK, MMQ_NOT_FOUND when the queue does not hold that message, or not any more, or the
 *   consumer was removed, MMQ_IO (messages acknowledged behind the place may come again after the
 *   next opening), MMQ_CLOSED once the queue was closed, MMQ_FORKED, MMQ_INVALID_ARGUMENT. The
 *   place stays unless MMQ_OK is returned.
 */
mmq_status mmq_consumer_seek(struct mmq_consumer *consumer, uint64_t seq);

/**
 * Begins to look at the messages that wait for the queue's own (default) consumer, from the next
 * one on. The iterator consumes nothing and keeps nothing in the queue: it passes over messages
 * that are taken meanwhile.
 *
 * @param queue Not NULL.
 * @param out Where the iterator goes; free it with mmq_iter_free. Not NULL.
 * @return MMQ_OK, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_iter_open(struct mmq_queue *queue, struct mmq_iter **out);

/**
 * As mmq_iter_open, for this consumer.
 *
 * @param consumer Not NULL.
 * @param out Where the iterator goes; free it with mmq_iter_free. Not NULL.
 * @return MMQ_OK, MMQ_CLOSED once the queue was closed, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_consumer_iter_open(struct mmq_consumer *consumer, struct mmq_iter **out);

/**
 * Hands out the next message for work that may fail. mmq_delivery_ack acknowledges it; the
 * consumer's stored place does not pass it before. mmq_delivery_nack, mmq_delivery_free or the
 * death of the process give it back. Messages given back come first. Several threads may receive
 * at the same time: only one of them has a message at a time.
 *
 * @param queue Not NULL.
 * @param out Where the delivery goes; end it with mmq_delivery_ack, _nack or _free. Not NULL.
 * @return As mmq_peek; MMQ_EMPTY also when as many messages as allowed are in flight.
 */
mmq_status mmq_receive(struct mmq_queue *queue, struct mmq_delivery **out);

/**
 * As mmq_receive, but waits for a message. Does not poll.
 *
 * @param queue Not NULL.
 * @param timeout_ms Milliseconds to wait; 0: not at all; below 0: for ever.
 * @param out Where the delivery goes; end it with mmq_delivery_ack, _nack or _free. Not NULL.
 * @return As mmq_receive, but MMQ_TIMED_OUT where that answers MMQ_EMPTY; MMQ_INTERRUPTED by
 *   mmq_interrupt.
 */
mmq_status mmq_receive_timeout(struct mmq_queue *queue,
                               int64_t timeout_ms,
                               struct mmq_delivery **out);

/**
 * Sets how many messages may be in flight (received, neither acknowledged nor given back) at a
 * time. The limit is not stored: every opening begins without one.
 *
 * @param queue Not NULL.
 * @param messages At least 1, or 0 for no limit.
 * @return MMQ_OK, MMQ_FULL or MMQ_IO when there is no room for the queue's own consumer,
 *   MMQ_FORKED, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_set_max_in_flight(struct mmq_queue *queue, uint32_t messages);

/**
 * How many messages of the queue's own (default) consumer are in flight: received, neither
 * acknowledged nor given back.
 *
 * @param queue Not NULL.
 * @param out Where the number goes. Not NULL.
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_in_flight(const struct mmq_queue *queue, uint64_t *out);

/**
 * A descriptor for poll, epoll or kqueue. It is readable while a message or an unreported gap
 * waits for the queue's own (default) consumer, and once the queue is closed. Do not read from it,
 * write to it or close it. Read the queue until MMQ_EMPTY before waiting on it again.
 *
 * @param queue Not NULL.
 * @param out Where the descriptor goes. It is the library's, and valid until the queue is closed.
 *   Not NULL.
 * @return MMQ_OK, MMQ_IO when the system has no descriptor left, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_ready_fd(struct mmq_queue *queue, int *out);

/**
 * Ends all waits, and leaves the queue open: every call that waits (mmq_dequeue_timeout,
 * mmq_receive_timeout and those of consumers, an enqueue with MMQ_WAIT, mmq_wait_durable) and that
 * began before this one answers MMQ_INTERRUPTED. A call that begins later waits again. Descriptors
 * become readable. Nothing is lost: a message that came at the same time stays for the next read.
 *
 * @param queue Not NULL.
 * @return MMQ_OK, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_interrupt(struct mmq_queue *queue);

/**
 * As mmq_receive, for this consumer.
 *
 * @param consumer Not NULL.
 * @param out Where the delivery goes; end it with mmq_delivery_ack, _nack or _free. Not NULL.
 * @return As mmq_receive; MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the queue
 *   was closed.
 */
mmq_status mmq_consumer_receive(struct mmq_consumer *consumer, struct mmq_delivery **out);

/**
 * As mmq_receive_timeout, for this consumer.
 *
 * @param consumer Not NULL.
 * @param timeout_ms Milliseconds to wait; 0: not at all; below 0: for ever.
 * @param out Where the delivery goes; end it with mmq_delivery_ack, _nack or _free. Not NULL.
 * @return As mmq_receive_timeout; MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the
 *   queue was closed.
 */
mmq_status mmq_consumer_receive_timeout(struct mmq_consumer *consumer,
                                        int64_t timeout_ms,
                                        struct mmq_delivery **out);

/**
 * As mmq_set_max_in_flight, for this consumer.
 *
 * @param consumer Not NULL.
 * @param messages At least 1, or 0 for no limit.
 * @return MMQ_OK, MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the queue was
 *   closed, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_consumer_set_max_in_flight(struct mmq_consumer *consumer, uint32_t messages);

/**
 * As mmq_ready_fd, for this consumer.
 *
 * @param consumer Not NULL.
 * @param out Where the descriptor goes. It is the library's, and valid until the queue is closed.
 *   Not NULL.
 * @return MMQ_OK, MMQ_IO when the system has no descriptor left, MMQ_NOT_FOUND once the consumer
 *   was removed, MMQ_CLOSED once the queue was closed, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_consumer_ready_fd(struct mmq_consumer *consumer, int *out);

/**
 * How many messages are in flight: received, neither acknowledged nor given back.
 *
 * @param consumer Not NULL.
 * @param out Where the number goes. Not NULL.
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_consumer_in_flight(const struct mmq_consumer *consumer, uint64_t *out);

/**
 * The next message ahead. At the end it answers MMQ_EMPTY, and goes on when asked again after new
 * messages came. After an error (16 and above) the iterator has ended for good.
 *
 * @param iter Not NULL.
 * @param out Where the message goes; free it with mmq_message_free. Not NULL.
 * @return MMQ_OK, MMQ_EMPTY, MMQ_GAP (not counted in the figures: a read reports the gap to the
 *   consumer when it comes there), MMQ_IO, MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED
 *   once the queue was closed, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_iter_next(struct mmq_iter *iter, struct mmq_message **out);

/**
 * As mmq_last_gap, for this iterator.
 *
 * @param iter Not NULL.
 * @param out Where the gap goes. Not NULL.
 * @return MMQ_OK, MMQ_EMPTY when there was none, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_iter_last_gap(struct mmq_iter *iter, struct mmq_gap *out);

/**
 * Frees an iterator. Allowed after mmq_close.
 *
 * @param iter From mmq_iter_open or mmq_consumer_iter_open, or NULL.
 */
void mmq_iter_free(struct mmq_iter *iter);

/**
 * The bytes of a delivery. They stay where they are until it is acknowledged, given back or freed.
 *
 * @param delivery Not NULL.
 * @return The first byte; not to be read when the length is 0. NULL when delivery is not a live
 *   handle.
 */
const uint8_t *mmq_delivery_data(const struct mmq_delivery *delivery);

/**
 * The length of a delivery.
 *
 * @param delivery Not NULL.
 * @return Bytes. 0 when delivery is not a live handle.
 */
size_t mmq_delivery_len(const struct mmq_delivery *delivery);

/**
 * The sequence number of a delivery.
 *
 * @param delivery Not NULL.
 * @return The number. UINT64_MAX, which no message has, when delivery is not a live handle.
 */
uint64_t mmq_delivery_seq(const struct mmq_delivery *delivery);

/**
 * How often the message was handed out since the queue was opened, this time included. With
 * mmq_set_redelivery it counts over openings.
 *
 * @param delivery Not NULL.
 * @return 1 the first time. 0 when delivery is not a live handle.
 */
uint32_t mmq_delivery_attempts(const struct mmq_delivery *delivery);

/**
 * Whether a delivery comes from the backlog of lanes (mmq_lanes): its message was left behind, or
 * handed out before the last jump.
 *
 * @param delivery Not NULL.
 * @return True if so. False when delivery is not a live handle.
 */
bool mmq_delivery_is_backlog(const struct mmq_delivery *delivery);

/**
 * Acknowledges the message: the work is done, and the message does not come again to this
 * consumer. Frees the delivery, whatever is returned. Deliveries may be acknowledged in any order
 * and from any thread. The acknowledgement survives the death of the process and, once flushed, a
 * power cut.
 *
 * Where an older message is still unacknowledged, the acknowledged numbers behind it are stored as
 * ranges: for each consumer the lowest 22 at least (114 where they lie close together). Messages
 * in further ranges come again after a crash, also when they were flushed. So do all messages
 * acknowledged ahead of an older one by a consumer for which the index file has no row of ranges
 * (six consumers have one) and cannot grow.
 *
 * @param delivery Not NULL.
 * @return MMQ_OK; MMQ_CLOSED when the queue was closed (the message comes again after the next
 *   opening), MMQ_EXPIRED when its lease has ended, MMQ_NOT_FOUND when the consumer was removed,
 *   MMQ_FORKED; MMQ_IO from a flush that the options ask for (the message is acknowledged all the
 *   same); MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_delivery_ack(struct mmq_delivery *delivery);

/**
 * Gives the message back: the work was not done, and the message goes to the front of the line.
 * Frees the delivery.
 *
 * @param delivery Not NULL.
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_delivery_nack(struct mmq_delivery *delivery);

/**
 * As mmq_delivery_nack, but takes NULL too, so that clean-up code can always call it. Allowed
 * after mmq_close.
 *
 * @param delivery From mmq_receive or the like, or NULL.
 */
void mmq_delivery_free(struct mmq_delivery *delivery);

/**
 * Sets when messages of the queue's own (default) consumer come again that were handed out and not
 * acknowledged. The rules are not stored: each opening begins without.
 *
 * From this call on it is stored before a message is handed out that it is, and how often it was
 * given back, so that mmq_delivery_attempts counts over openings. After a death of the process,
 * the messages that had been handed out come again one at a time, until they are done: only a
 * death with a message alone in flight counts against it. Four consumers of a queue have a row in
 * the index for this; a fifth one's messages are not counted over openings.
 *
 * @param queue Not NULL.
 * @param lease_ms A delivery that is neither acknowledged nor given back after so many
 *   milliseconds
 *   goes back by itself, and to acknowledge it is MMQ_EXPIRED. 0 or below: never.
 * @param first_delay_ms A message that was given back comes again after so many milliseconds,
 *   twice
 *   as many each time it is given back again; others pass it. 0 or below: at once.
 * @param max_delay_ms The longest of these delays; 0 or below: the first one.
 * @param max_attempts A message that was handed out so often in vain is rejected, as by
 *   mmq_delivery_reject. 0: never.
 * @param dead The queue that rejected messages go to, or NULL: they are given up, and reported
 *   as a gap (MMQ_GAP_REJECTED). While it is full or closed they stay, and are tried again. Close
 *   it after this queue.
 * @return MMQ_OK; MMQ_INVALID_ARGUMENT, also when the first delay is longer than the longest, and
 *   when the dead letters would come back to this queue; MMQ_FULL or MMQ_IO when there is no room
 *   for the queue's own consumer, MMQ_FORKED.
 */
mmq_status mmq_set_redelivery(struct mmq_queue *queue,
                              int64_t lease_ms,
                              int64_t first_delay_ms,
                              int64_t max_delay_ms,
                              uint32_t max_attempts,
                              struct mmq_queue *dead);

/**
 * As mmq_set_redelivery, for this consumer.
 *
 * @param consumer Not NULL.
 * @param lease_ms As there.
 * @param first_delay_ms As there.
 * @param max_delay_ms As there.
 * @param max_attempts As there.
 * @param dead As there, or NULL.
 * @return As there; MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the queue was
 *   closed.
 */
mmq_status mmq_consumer_set_redelivery(struct mmq_consumer *consumer,
                                       int64_t lease_ms,
                                       int64_t first_delay_ms,
                                       int64_t max_delay_ms,
                                       uint32_t max_attempts,
                                       struct mmq_queue *dead);

/**
 * Gives the message back, to come again after a delay. Others pass it meanwhile. Frees the
 * delivery. After the next opening the message comes at once.
 *
 * @param delivery Not NULL.
 * @param delay_ms Milliseconds; 0 or below: at once.
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_delivery_nack_after(struct mmq_delivery *delivery, int64_t delay_ms);

/**
 * Has the lease of a delivery end so many milliseconds from now, for work that takes longer. A
 * delivery without a lease stays without.
 *
 * @param delivery Not NULL.
 * @param ms Milliseconds, above 0.
 * @return MMQ_OK; MMQ_EXPIRED when the lease has ended (the message comes, or came, to another
 *   worker; free the delivery), MMQ_CLOSED, MMQ_NOT_FOUND when the consumer was removed,
 *   MMQ_FORKED, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_delivery_extend(const struct mmq_delivery *delivery, int64_t ms);

/**
 * Rejects the message: it comes no more. It goes to the consumer's queue for dead letters, where
 * it is durable before it is acknowledged here; without one it is given up, and reported as a
 * gap (MMQ_GAP_REJECTED). Frees the delivery, whatever is returned.
 *
 * @param delivery Not NULL.
 * @return MMQ_OK; otherwise as mmq_delivery_ack, and MMQ_EXPIRED when the lease has ended.
 */
mmq_status mmq_delivery_reject(struct mmq_delivery *delivery);

/**
 * Reads a consumer in two lanes from now on. Opened again, also through another handle, it changes
 * how the lanes are read, and nothing else: all handles of the consumer's lanes read the same
 * ones. How they are read is not stored. mmq_consumer_receive and the consumer's other reads take
 * the oldest message of both lanes. A seek leaves nothing behind.
 *
 * @param consumer Not NULL. It may be freed before the lanes are.
 * @param options How the lanes are read. May be NULL: the defaults.
 * @param out Where the handle goes; free it with mmq_lanes_free. Not NULL.
 * @return MMQ_OK; MMQ_INVALID_ARGUMENT, also for an unknown number for an enum and where nothing
 *   would be fresh; MMQ_IO when what an earlier run left behind cannot be looked for,
 *   MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the queue was closed, MMQ_FORKED.
 *   Nothing has changed then.
 */
mmq_status mmq_lanes_open(struct mmq_consumer *consumer,
                          const struct mmq_lane_options *options,
                          struct mmq_lanes **out);

/**
 * Frees a handle. The lanes stay as they are, and so does the consumer. Allowed after mmq_close.
 *
 * @param lanes From mmq_lanes_open, or NULL.
 */
void mmq_lanes_free(struct mmq_lanes *lanes);

/**
 * Hands out the next message of both lanes, as they share. As mmq_consumer_receive otherwise;
 * mmq_delivery_is_backlog tells which lane a message comes from.
 *
 * @param lanes Not NULL.
 * @param out Where the delivery goes; end it with mmq_delivery_ack, _nack or _free. Not NULL.
 * @return As mmq_consumer_receive; MMQ_EMPTY when neither lane has a message that may be handed
 *   out now.
 */
mmq_status mmq_lanes_receive(struct mmq_lanes *lanes, struct mmq_delivery **out);

/**
 * Hands out the next fresh message.
 *
 * @param lanes Not NULL.
 * @param out Where the delivery goes; end it with mmq_delivery_ack, _nack or _free. Not NULL.
 * @return As mmq_lanes_receive.
 */
mmq_status mmq_lanes_receive_fresh(struct mmq_lanes *lanes, struct mmq_delivery **out);

/**
 * Hands out the next message of the backlog, if its rate allows one now.
 *
 * @param lanes Not NULL.
 * @param out Where the delivery goes; end it with mmq_delivery_ack, _nack or _free. Not NULL.
 * @return As mmq_lanes_receive.
 */
mmq_status mmq_lanes_receive_backlog(struct mmq_lanes *lanes, struct mmq_delivery **out);

/**
 * As mmq_lanes_receive, but waits for a message, also until the backlog's rate allows one. Does
 * not poll.
 *
 * @param lanes Not NULL.
 * @param timeout_ms Milliseconds to wait; 0: not at all; below 0: for ever.
 * @param out Where the delivery goes; end it with mmq_delivery_ack, _nack or _free. Not NULL.
 * @return As mmq_consumer_receive_timeout.
 */
mmq_status mmq_lanes_receive_timeout(struct mmq_lanes *lanes,
                                     int64_t timeout_ms,
                                     struct mmq_delivery **out);

/**
 * As mmq_lanes_receive_fresh, but waits for a message.
 *
 * @param lanes Not NULL.
 * @param timeout_ms Milliseconds to wait; 0: not at all; below 0: for ever.
 * @param out Where the delivery goes; end it with mmq_delivery_ack, _nack or _free. Not NULL.
 * @return As mmq_lanes_receive_timeout.
 */
mmq_status mmq_lanes_receive_fresh_timeout(struct mmq_lanes *lanes,
                                           int64_t timeout_ms,
                                           struct mmq_delivery **out);

/**
 * As mmq_lanes_receive_backlog, but waits for a message, also until the rate allows one.
 *
 * @param lanes Not NULL.
 * @param timeout_ms Milliseconds to wait; 0: not at all; below 0: for ever.
 * @param out Where the delivery goes; end it with mmq_delivery_ack, _nack or _free. Not NULL.
 * @return As mmq_lanes_receive_timeout.
 */
mmq_status mmq_lanes_receive_backlog_timeout(struct mmq_lanes *lanes,
                                             int64_t timeout_ms,
                                             struct mmq_delivery **out);

/**
 * As mmq_last_gap, for this handle of the lanes.
 *
 * @param lanes Not NULL.
 * @param out Where the gap goes. Not NULL.
 * @return MMQ_OK, MMQ_EMPTY when there was none, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_lanes_last_gap(struct mmq_lanes *lanes, struct mmq_gap *out);

/**
 * Leaves what waits in the fresh lane behind, for the backlog: the lane goes on with the next
 * message that is put in.
 *
 * @param lanes Not NULL.
 * @param first Where the first number goes that was left. May be NULL.
 * @param end Where the number goes behind the last one that was left: the same as first when
 *   nothing waited. May be NULL.
 * @return MMQ_OK, MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the queue was
 *   closed, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_lanes_jump(struct mmq_lanes *lanes, uint64_t *first, uint64_t *end);

/**
 * The stretches of the backlog that have yet to be handed out, the oldest first. Messages in
 * flight are in none. There are none once the consumer was removed.
 *
 * @param lanes Not NULL.
 * @param out An array of room places, where the stretches go; at most room are written. May be
 *   NULL when room is 0.
 * @param room The length of out.
 * @param count_out Where the number of stretches goes that there are, which may be more than room.
 *   Not NULL.
 * @return MMQ_OK, MMQ_CLOSED once the queue was closed, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_lanes_backlog(struct mmq_lanes *lanes,
                             struct mmq_stretch *out,
                             size_t room,
                             size_t *count_out);

/**
 * Where a message comes from, if it is a dead letter: one that another queue put in here because
 * it was handed out too often there.
 *
 * @param message Not NULL.
 * @param out Where that goes; set out->struct_size before. Not NULL.
 * @return MMQ_OK; MMQ_NOT_FOUND when the message is no dead letter; MMQ_INVALID_ARGUMENT, also
 *   when struct_size was not set.
 */
mmq_status mmq_message_origin(const struct mmq_message *message, struct mmq_origin *out);

/**
 * As mmq_message_origin, of a delivery.
 *
 * @param delivery Not NULL.
 * @param out Where that goes; set out->struct_size before. Not NULL.
 * @return MMQ_OK; MMQ_NOT_FOUND when the message is no dead letter; MMQ_INVALID_ARGUMENT, also
 *   when struct_size was not set.
 */
mmq_status mmq_delivery_origin(const struct mmq_delivery *delivery, struct mmq_origin *out);

/**
 * Reads the figures of a queue.
 *
 * @param queue Not NULL.
 * @param out Where they go; set out->struct_size before. Not NULL.
 * @return MMQ_OK; MMQ_INVALID_ARGUMENT, also when struct_size was not set.
 */
mmq_status mmq_read_stats(const struct mmq_queue *queue, struct mmq_stats *out);

/**
 * Reads the figures of a consumer.
 *
 * @param consumer Not NULL.
 * @param out Where they go; set out->struct_size before. Not NULL.
 * @return MMQ_OK; MMQ_INVALID_ARGUMENT, also when struct_size was not set.
 */
mmq_status mmq_consumer_read_stats(const struct mmq_consumer *consumer,
                                   struct mmq_consumer_stats *out);

/**
 * The queue's id: 16 random bytes, given when the queue was created, the same at every opening.
 * With a sequence number it names one message among those of all queues. A copy of the directory
 * has the same id.
 *
 * @param queue Not NULL.
 * @param out Where the 16 bytes go. Not NULL.
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_queue_id(const struct mmq_queue *queue, uint8_t out[16]);

/**
 * Looks at the queue in a directory from outside: without its lock, without a mapping and without
 * a write. Another process may use the queue meanwhile; nobody need. Who has a queue is looked up
 * in /proc/locks: where that does not exist, a queue in use looks like one whose process died.
 *
 * @param dir The queue's directory: a path that ends with a zero byte. Not NULL.
 * @param out Where the figures go; set out->struct_size before. Not NULL.
 * @return MMQ_OK; MMQ_NOT_FOUND when there is no queue; MMQ_NOT_A_QUEUE;
 *         MMQ_UNSUPPORTED_FORMAT; MMQ_IO, also when the queue is being changed too quickly to be
 *         read; MMQ_INVALID_ARGUMENT, also when struct_size was not set.
 */
mmq_status mmq_inspect(const char *dir, struct mmq_inspection *out);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* MMQ_H */
