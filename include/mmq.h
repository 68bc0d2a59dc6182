/*
 * mmq: an embedded, durable first-in first-out queue on memory-mapped files.
 *
 * A queue is a directory. A message is bytes. Any number of threads of one process put messages in
 * at the tail and take them out at the head. Other processes use the queue through the one that has
 * it open (mmq_connect). The queue may be far larger than memory. Its messages survive the process
 * and, once flushed, a power cut. There is no server to install.
 *
 * Made from the library's source by `MMQ_BLESS=1 cargo test --test sources header`; do not edit.
 * C99 and later, C++11 and later (C++17: see also mmq.hpp).
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
 *         if (status == MMQ_GAP) { // messages are missing, for example damaged; the next read continues behind them
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
 * Gaps. Some messages are missing: damaged, lost by a power cut, dropped, too old, or rejected.
 * MMQ_GAP reports them once to each consumer, in their place; mmq_last_gap has the
 * numbers, mmq_last_error the text. The next read goes on behind them, so do not end a loop at
 * MMQ_GAP: while (mmq_dequeue(...) == MMQ_OK) takes the first damaged message for an empty queue
 * and leaves all the rest unread. The loop of the program above does it right.
 *
 * Outputs. They are written when a call returns MMQ_OK, and left as they were otherwise. The one
 * exception is the length with MMQ_BUFFER_TOO_SMALL.
 *
 * Invalid arguments. NULL where it is not allowed, an impossible count and an unknown number for an
 * enum return MMQ_INVALID_ARGUMENT and never crash. So does a handle of another kind, and a
 * handle that was closed or freed, as long as fewer than 32 others of its kind were closed or freed
 * after it (for messages: by the same thread). That check helps to find bugs; it is no promise.
 *
 * Ownership. A handle from mmq_options_new goes to mmq_options_free; from mmq_open to mmq_close;
 * from mmq_peek, mmq_dequeue and the like to mmq_message_free; from mmq_consumer_open and _fork to
 * mmq_consumer_free; from mmq_receive and the like to mmq_delivery_ack, _nack, _nack_after, _reject
 * or _free; from mmq_iter_open to mmq_iter_free; from mmq_lanes_open to mmq_lanes_free; from
 * mmq_connect to mmq_client_free; from mmq_client_consumer_open to mmq_client_consumer_free.
 * Functions named close or free do nothing with NULL. Text that a function returns (mmq_path,
 * mmq_consumer_name) is lent until its handle is closed or freed. The program never has to call
 * free() or delete on memory of the library. Once a call returns, the library does not need the
 * memory that the caller passed in.
 *
 * Messages. If the bytes of an mmq_message lie in one piece in mapped memory, the library lends
 * them in place; otherwise it makes a copy. They stay valid and unchanged until mmq_message_free:
 * over later calls, over mmq_close, in any thread. Do not write to them. A queue with a cap on
 * mapped arenas lends from a bounded number of arenas, and copies the messages of others: holding
 * many messages for long costs copies, but no call fails. Handles are used again: once a thread has
 * freed some, mmq_peek and mmq_dequeue allocate nothing for a lent message, and only the bytes for
 * a copied one. The _into functions copy into the caller's buffer and allocate nothing, except
 * for a message in several pieces.
 *
 * Threads. Any thread may call any function on the same handle at the same time, except that no
 * thread may close or free a handle while another thread uses it. A message that one thread took
 * may be read and freed by another.
 *
 * Processes. One process at a time owns a queue; a second opener gets MMQ_LOCKED. The lock
 * dies with its holder, so there is nothing to clean up after a crash. An owner that opened the
 * queue with mmq_options_set_shared lets other processes use it, as clients (mmq_connect): it does
 * for them what its own threads do. What a client has in flight when it ends goes back to the queue.
 * When the owner ends, its clients' calls return MMQ_CLOSED or MMQ_DISCONNECTED: free the client,
 * and connect to the next owner. After fork() the child cannot use its parent's queue or client
 * (MMQ_FORKED). It may free all handles, also messages and
 * deliveries, but must not read the bytes of a message or a delivery that was taken before the
 * fork: the parent uses their space again. Copy what the child is to read before the fork. A child
 * may open queues of its own, whatever the parent's threads did at the fork (on other systems than
 * Linux: if none of them waited in a call of mmq).
 *
 * Signals. Do not call any function from a signal handler. The library installs no handler, and
 * restarts interrupted system calls. The end of an owner or a client raises no SIGPIPE. If another program truncates the queue's files while they are
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
 * Only in Rust. Futures need a Rust executor: mmq_ready_fd serves event loops instead. Salvage,
 * copies and checks of a whole queue are commands of the tool mmq, too. Forwarding to other engines
 * is in mmq_forward.h, which stands beside this header when the library was built with it.
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
 * The result of a call. 0 is success, 1 to 15 are ordinary results, 16 and above are errors. The
 * numbers never change; later versions may add some, so treat an unknown number from 16 on as an
 * error.
 */
enum mmq_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /** The call succeeded. */
  MMQ_OK = 0,
  /** There is no message (or no gap) to return. */
  MMQ_EMPTY = 1,
  /**
   * The buffer is too small for the message: the call wrote the message's length and consumed
   * nothing.
   */
  MMQ_BUFFER_TOO_SMALL = 2,
  /** No message arrived in time. */
  MMQ_TIMED_OUT = 3,
  /**
   * Messages are missing here and will never be delivered. One read reports it, and the next one
   * continues behind them: do not end a loop of reads here. See mmq_last_gap.
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
  /** There is no queue, consumer or message with that name or number. */
  MMQ_NOT_FOUND = 21,
  /** A later version of mmq wrote the files. The call left them unchanged. */
  MMQ_UNSUPPORTED_FORMAT = 22,
  /** A system call failed; mmq_last_error names the call and the file. */
  MMQ_IO = 23,
  /**
   * An earlier flush failed: the queue rejects writes until it is opened again. Reads still
   * work.
   */
  MMQ_POISONED = 24,
  /** The queue was closed: the program can only free its consumers' handles. */
  MMQ_CLOSED = 25,
  /** The queue was opened before a fork, and this is the child: it cannot use its parent's queue. */
  MMQ_FORKED = 26,
  /**
   * The lease of the delivery had ended: another worker gets, or got, its message. Nothing was
   * changed.
   */
  MMQ_EXPIRED = 27,
  /**
   * mmq_interrupt ended the call's wait: nothing was changed, and the program may repeat the
   * call.
   */
  MMQ_INTERRUPTED = 28,
  /**
   * The directory holds files, but none of a queue. The call left it unchanged; mmq_last_error
   * names one of the files.
   */
  MMQ_NOT_A_QUEUE = 29,
  /**
   * The library built with forwarding only (mmq_forward.h): forwarding has ended, and a person
   * must act. mmq_last_error says why. No message is lost.
   */
  MMQ_FAR_SIDE = 30,
  /**
   * A bug in mmq: a panic, or an invariant that does not hold. The queue can still be used;
   * please report mmq_last_error's text.
   */
  MMQ_PANIC = 31,
  /**
   * No owner of the queue answers: no process has it open, or it serves enough clients already,
   * or not this user. mmq_last_error says which.
   */
  MMQ_NOT_SHARED = 32,
  /**
   * The connection to the queue's owner has ended, because its process died or closed the queue.
   * mmq_last_error says whether the call may have been done.
   */
  MMQ_DISCONNECTED = 33,
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
  /** Their bytes are not the ones written: a file was damaged, replaced or removed. */
  MMQ_GAP_DAMAGED = 1,
  /** They had not been flushed when the machine lost power. */
  MMQ_GAP_UNFLUSHED = 2,
  /**
   * The queue dropped them to make room (MMQ_DROP_OLDEST). The gap counts all dropped numbers,
   * including those that were already lost or only reserved.
   */
  MMQ_GAP_DROPPED = 3,
  /**
   * They were older than the maximum age. The gap counts all expired numbers, including those
   * that were already lost or only reserved.
   */
  MMQ_GAP_EXPIRED = 4,
  /**
   * This consumer rejected the message, or used up its delivery attempts, and has no dead-letter
   * queue (mmq_consumer_set_redelivery).
   */
  MMQ_GAP_REJECTED = 5,
  /**
   * The queue had reserved these numbers for future messages when the machine lost power, or
   * when the process died and the queue is now opened through another mount. Probably no message
   * is missing, because none is known to have had one of the numbers; but unflushed messages may
   * have been lost together with that knowledge. The numbers stay unused, so that no number
   * names two messages.
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

/** In which order the backlog is read. */
enum mmq_backlog_order
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /** In the order in which the messages were enqueued. The default. */
  MMQ_OLDEST_FIRST = 0,
  /**
   * The stretch that was skipped last, then the one before it: a stretch is what the fresh lane
   * skipped in one jump (see mmq_lanes). Within a stretch, messages keep the order in which they
   * were enqueued.
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
   * A message is fresh for fresh_within milliseconds after it was enqueued, and at most an
   * eighth longer. From mmq_lanes_open on the queue remembers, in memory and to an eighth of
   * this time, when messages were enqueued. Messages enqueued earlier in this opening may count
   * as younger than they are; messages of earlier openings belong to the backlog.
   */
  MMQ_FRESH_AGE = 1,
  /** A message is fresh while it is among the last fresh_within messages, by sequence number. */
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
  /** Return MMQ_FULL. The default. */
  MMQ_REJECT = 0,
  /** Wait until there is room. */
  MMQ_WAIT = 1,
  /**
   * Drop the oldest messages, a whole segment at a time: three quarters of max_bytes or more
   * stay full. Every consumer that had not read them gets a gap of cause MMQ_GAP_DROPPED, and so
   * does the queue's first consumer, if they went before it was made. A consumer made later
   * begins behind them and gets none.
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
  /** At the oldest message in the queue. */
  MMQ_START_OLDEST = 0,
  /** Behind the newest message. */
  MMQ_START_END = 1,
  /**
   * At the message with a given sequence number, or at the next one if that is no longer in the
   * queue.
   */
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
 * A queue that another process has open and shares (mmq_options_set_shared). The other process,
 * its owner, does what a client asks, and answers.
 */
typedef struct mmq_client mmq_client;

/**
 * A consumer of a queue that another process has open. Each message of a consumer goes to one
 * reader, in whichever process.
 */
typedef struct mmq_client_consumer mmq_client_consumer;

/**
 * A consumer: a named, stored read position in a queue. Handles of the same consumer share its
 * position: each message goes to exactly one of them. Consumers of different names each see every
 * message.
 */
typedef struct mmq_consumer mmq_consumer;

/** A message that a consumer received and has not yet acknowledged. */
typedef struct mmq_delivery mmq_delivery;

/** Reads ahead over the messages of a queue or a consumer, and consumes nothing. */
typedef struct mmq_iter mmq_iter;

/**
 * Reads one consumer in two lanes: fresh messages in their order, and beside them the backlog,
 * also in its order. For a program that sends messages over a link that may be down: after an
 * outage it sends the newest messages first, and the ones that waited beside them. It sends none
 * twice and forgets none, over any number of outages and openings.
 *
 * When the next message of the fresh lane is no longer fresh (mmq_lane_options), the lane jumps to
 * the end of the queue. The skipped messages become a stretch of the backlog. A message that was
 * delivered before the jump and must be delivered again also belongs to the backlog.
 *
 * The queue stores only acknowledgements (mmq_delivery_ack): after an opening, the unacknowledged
 * messages between acknowledged ones are the backlog. So each unfinished stretch costs a stored
 * range. With more stretches than mmq_delivery_ack can store ranges, messages acknowledged between
 * stretches are delivered again after an opening, in the backlog. The queue keeps all messages
 * from the oldest one of the backlog on.
 */
typedef struct mmq_lanes mmq_lanes;

/**
 * A message that was taken or peeked at. Its bytes are lent in place where possible. Free it with
 * mmq_message_free. (If the system has no memory for a copy of such bytes when the queue closes,
 * the queue stays locked until the message is freed.)
 */
typedef struct mmq_message mmq_message;

/**
 * How a queue is opened. mmq_options_new makes the options, mmq_options_set_... change them,
 * mmq_open takes them.
 */
typedef struct mmq_options mmq_options;

/** An open queue. */
typedef struct mmq_queue mmq_queue;

/** Bytes that the caller lends for the duration of a call. */
typedef struct mmq_slice {
  /** The first byte; may be NULL when len is 0. */
  const void *data;
  /** How many bytes. */
  size_t len;
} mmq_slice;

/**
 * A range of sequence numbers that will never be delivered, and the reason. With MMQ_GAP_RESERVED
 * this is not a count of lost messages.
 */
typedef struct mmq_gap {
  /** The first missing sequence number. */
  uint64_t first;
  /** The last missing sequence number. */
  uint64_t last;
  /** Why they are missing. */
  mmq_gap_cause cause;
} mmq_gap;

/** A message that mmq_dequeue_batch_into copied. */
typedef struct mmq_copied_message {
  /** The first byte, in the caller's buffer. */
  const void *data;
  /** How many bytes. */
  size_t len;
  /** The sequence number. */
  uint64_t seq;
} mmq_copied_message;

/**
 * How lanes are read. A field that is zero has its default (mmq_lane_options options = {0}; in C++
 * {}).
 */
typedef struct mmq_lane_options {
  /** How the library decides that a message is no longer fresh. */
  mmq_fresh fresh;
  /**
   * How long a message is fresh: milliseconds with MMQ_FRESH_AGE, messages with
   * MMQ_FRESH_MESSAGES, at least 1. Ignored with MMQ_FRESH_MANUAL.
   */
  int64_t fresh_within;
  /**
   * While both lanes have messages, reads take share_fresh messages of the fresh lane, then
   * share_backlog of the backlog. While one lane is empty, they take only from the other. Both
   * 0: the default, 4 to 1.
   */
  uint32_t share_fresh;
  /**
   * See share_fresh. With 1 to 0, reads take from the backlog only while the fresh lane is
   * empty.
   */
  uint32_t share_backlog;
  /**
   * The most messages per second from the backlog. 0: no limit. While this limit delays a
   * message, the descriptor of mmq_consumer_ready_fd is readable all the same.
   */
  uint64_t backlog_rate;
  /** In which order the backlog is read. */
  mmq_backlog_order order;
} mmq_lane_options;

/** A stretch of the backlog: the sequence numbers from first on that are below end. */
typedef struct mmq_stretch {
  /** The first sequence number. */
  uint64_t first;
  /** The sequence number behind the last one. */
  uint64_t end;
} mmq_stretch;

/**
 * The queue and message from which a dead letter was made. Later versions append fields: set
 * struct_size to sizeof(mmq_origin) before every call of mmq_message_origin and
 * mmq_delivery_origin.
 */
typedef struct mmq_origin {
  /**
   * In: the caller's sizeof(mmq_origin). Out: how many bytes were filled; fields behind them are
   * as they were.
   */
  size_t struct_size;
  /** The id of the queue in which the message was enqueued first (see mmq_queue_id). */
  uint8_t queue_id[16];
  /** Its sequence number there. */
  uint64_t seq;
  /** How often it was delivered there without an acknowledgement. */
  uint32_t attempts;
  /** 0. */
  uint32_t reserved;
} mmq_origin;

/**
 * Figures of a queue. They are read one by one while other threads work: each is right at its own
 * moment, and every message counted as taken is also counted as enqueued. Totals count from this
 * opening of the queue on. Later versions append fields: set struct_size to sizeof(mmq_stats)
 * before every call of mmq_read_stats.
 */
typedef struct mmq_stats {
  /**
   * In: the caller's sizeof(mmq_stats). Out: how many bytes were filled; fields behind them are
   * as they were.
   */
  size_t struct_size;
  /**
   * Messages that wait for the default consumer. Without a default consumer: messages that some
   * consumer has not finished. Without any consumer: all messages in the queue.
   */
  uint64_t messages;
  /** Bytes of the segments that those messages take, headers included. */
  uint64_t bytes;
  /** Segments that hold messages. */
  uint64_t segments;
  /** Drained segments kept for reuse. */
  uint64_t spare_segments;
  /** Mapped bytes, in arenas, rounded up. */
  uint64_t mapped_arenas;
  /** Bytes mapped now, without the index file. */
  uint64_t mapped_bytes;
  /**
   * Disk bytes of all files, including removed files that a message, an iterator or a consumer
   * still reads from. So this may be above max_bytes, which limits the files in the directory.
   */
  uint64_t disk_bytes;
  /** The sequence number the next message will get. */
  uint64_t next_seq;
  /** The first sequence number still in the queue. */
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
   * The reserved ones may include lost messages, too, which were not flushed before a power cut.
   */
  uint64_t lost_messages;
  /** Lost messages whose bytes were damaged. */
  uint64_t lost_damaged;
  /** Messages lost in a power cut because they were not flushed. */
  uint64_t lost_unflushed;
  /** Sequence numbers dropped to make room. */
  uint64_t lost_dropped;
  /** Sequence numbers evicted because they were too old. */
  uint64_t lost_expired;
  /** Flushes of messages since the queue was opened. */
  uint64_t flushes;
  /** Time that those flushes took, in nanoseconds. */
  uint64_t flush_ns;
  /**
   * 1 when a flush has failed and the queue rejects writes (mmq_flush then returns MMQ_POISONED,
   * and mmq_last_error has the reason); else 0.
   */
  uint64_t poisoned;
  /**
   * An upper bound for the age of the oldest message that waits for the default consumer, in
   * milliseconds; 0 when no message waits.
   */
  uint64_t oldest_age_ms;
  /**
   * Sequence numbers in the gaps that the queue had only reserved before a power cut: probably
   * no message ever had them.
   */
  uint64_t reserved_numbers;
  /** Time that the longest flush took, in nanoseconds. */
  uint64_t longest_flush_ns;
  /** Enqueueing calls that failed because the queue or the disk was full. */
  uint64_t refused;
  /**
   * Total time that enqueueing calls waited for room, in nanoseconds (MMQ_WAIT), including calls
   * that then succeeded.
   */
  uint64_t wait_ns;
  /**
   * Messages dropped to make room since the queue was opened, before every consumer had read
   * them: each is counted once, when it is dropped, not when a read reports it.
   */
  uint64_t dropped;
  /** Messages evicted as too old since the queue was opened, before every consumer had read them. */
  uint64_t expired;
  /**
   * Messages rejected since the queue was opened (by mmq_delivery_reject, or after the
   * max_attempts of mmq_set_redelivery), whether they became dead letters or were discarded.
   * Each is counted when it is rejected.
   */
  uint64_t rejected;
  /** Messages discarded because a consumer rejected them. */
  uint64_t lost_rejected;
  /**
   * Messages discarded since the queue was opened because the first consumer started behind them
   * (mmq_consumer_open_at). They are counted when that consumer is created, and removed with
   * their segments.
   */
  uint64_t unclaimed;
} mmq_stats;

/**
 * Figures of one consumer, read one by one like those of mmq_stats. Later versions append fields:
 * set struct_size to sizeof(mmq_consumer_stats) before every call of mmq_consumer_read_stats.
 */
typedef struct mmq_consumer_stats {
  /**
   * In: the caller's sizeof(mmq_consumer_stats). Out: how many bytes were filled; fields behind
   * them are as they were.
   */
  size_t struct_size;
  /**
   * The consumer's position: every message below it is done (taken, acknowledged, reported as
   * missing, or skipped by a seek).
   */
  uint64_t next_seq;
  /** Messages that the consumer has neither taken nor acknowledged, including messages in flight. */
  uint64_t messages;
  /**
   * Bytes of the segments from the oldest of these messages on, including headers and
   * acknowledged messages between them.
   */
  uint64_t bytes;
  /** Messages received, but neither acknowledged nor returned. */
  uint64_t in_flight;
  /**
   * An upper bound for the age of the oldest message that waits, in milliseconds: the time since
   * its segment was begun. 0 when no message waits.
   */
  uint64_t oldest_age_ms;
} mmq_consumer_stats;

/**
 * What mmq_inspect finds out about a queue. All figures except disk_bytes are of one moment. Later
 * versions append fields: set struct_size to sizeof(mmq_inspection) before every call of
 * mmq_inspect.
 */
typedef struct mmq_inspection {
  /**
   * In: the caller's sizeof(mmq_inspection). Out: how many bytes were filled; fields behind them
   * are as they were.
   */
  size_t struct_size;
  /**
   * 0: a process has the queue open. 1: it was closed. 2: its process died; the figures are
   * exact, and nothing was lost unless a flush had failed before. 3: the machine lost power, or
   * the index is lost; the figures show what the next opening will find. 4: no message was ever
   * enqueued.
   */
  int state;
  /**
   * The process that has the queue open; 0 when no process has, or one that this process cannot
   * see, as in another container.
   */
  uint32_t owner_pid;
  /** The sequence number the next message will get. */
  uint64_t next_seq;
  /** The first sequence number still in the queue. */
  uint64_t oldest_seq;
  /** The first sequence number not yet known to be durable. */
  uint64_t durable_seq;
  /**
   * Messages that wait for the default consumer. Without a default consumer: messages that some
   * consumer has not finished. Without any consumer: all messages in the queue.
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
  /** 1 when a flush of the owning process has failed, so that the queue rejects writes; else 0. */
  uint64_t poisoned;
  /** The queue's id: random bytes, chosen when the queue was created. */
  uint8_t queue_id[16];
} mmq_inspection;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns the version of the running library, as "MAJOR.MINOR.PATCH". MMQ_VERSION_MAJOR, _MINOR
 * and _PATCH are the version of the header that the program was compiled with.
 *
 * @return Static text, never NULL.
 */
const char *mmq_version(void);

/**
 * Describes a status in a few words. mmq_last_error has the details of a particular failure.
 *
 * @param status Any number, also an unknown one.
 * @return Static text, never NULL.
 */
const char *mmq_status_message(mmq_status status);

/**
 * Copies the full text of this thread's last error: the failed operation, the file, and the
 * system's error. UTF-8, at most 5120 bytes. The text is from this thread's latest call that
 * returned MMQ_GAP or an error (16 and above), or that has no status and got a handle that is not
 * live. Successful calls do not change it, like errno. Empty when there was no error.
 *
 * @param buf Receives the text, truncated to fit, and always ended by a zero byte. NULL to get
 *   only the length.
 * @param cap Size of buf in bytes.
 * @return Length of the whole text in bytes, without the zero byte.
 */
size_t mmq_last_error(char *buf, size_t cap);

/**
 * Creates an object with the default options. Free it with mmq_options_free; a queue opened with
 * it no longer needs it.
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
 * Sets the size of an arena. An arena is the piece of a segment (a file with messages) that is
 * mapped into memory at a time; no segment file is longer than an arena. Default 134217728 (128
 * MiB). The size may differ at every opening. Segments are short (2 MiB) while consumers have
 * little to read, and grow with their backlog: a nearly empty queue stays small whatever its arena
 * size.
 *
 * @param options Not NULL.
 * @param bytes A multiple of the OS page, 4096 to 1073741824 (checked by mmq_open).
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_options_set_arena_size(struct mmq_options *options, uint64_t bytes);

/**
 * Sets how many arenas may be mapped at a time. Default 3. Mapped memory stays within this number
 * times the arena size, whatever the backlog.
 *
 * @param options Not NULL.
 * @param arenas At least 3, or 0 for no cap (checked by mmq_open).
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_options_set_max_mapped_arenas(struct mmq_options *options, uint32_t arenas);

/**
 * Makes the queue flush after every so many operations (messages enqueued, taken or acknowledged).
 * Default 0, off. The operation that completes the number returns once the flush is done. If the
 * flush fails, mmq_enqueue and mmq_delivery_ack return its error; a call that takes a message
 * still returns the message, and the next call that writes returns MMQ_POISONED. With 1, every
 * message is durable when mmq_enqueue returns, and consumers see it only then; threads that wait
 * at the same time share one flush.
 *
 * @param options Not NULL.
 * @param operations A number of operations; 0 turns it off.
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_options_set_flush_every_ops(struct mmq_options *options, uint64_t operations);

/**
 * Makes a thread of the queue flush once in every period. Default 0, off. If such a flush fails,
 * the next call that writes reports it.
 *
 * @param options Not NULL.
 * @param ms The period in milliseconds; 0 turns it off.
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_options_set_flush_every_ms(struct mmq_options *options, uint64_t ms);

/**
 * Sets the most disk bytes that all files of the queue may take: messages, index, space allocated
 * ahead. Default 0, no limit.
 *
 * @param options Not NULL.
 * @param bytes At least 65536, or 0 for no limit (checked by mmq_open).
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_options_set_max_bytes(struct mmq_options *options, uint64_t bytes);

/**
 * Sets how much space of the file system the queue leaves free for other programs. Default 0. With
 * MMQ_DROP_OLDEST the queue drops its oldest messages to give that space back when another program
 * takes it. Once all of the queue would not be enough, it drops none, and refuses new ones.
 *
 * @param options Not NULL.
 * @param bytes Bytes.
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_options_set_min_free_bytes(struct mmq_options *options, uint64_t bytes);

/**
 * Sets what mmq_enqueue does when there is no room for a message. Default MMQ_REJECT.
 *
 * @param options Not NULL.
 * @param policy MMQ_REJECT, MMQ_WAIT or MMQ_DROP_OLDEST.
 * @param wait_ms For MMQ_WAIT: how long to wait, in milliseconds, before returning MMQ_FULL; below
 *   0: for ever. Ignored with the other policies.
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT (also for an unknown policy).
 */
mmq_status mmq_options_set_on_full(struct mmq_options *options,
                                   mmq_on_full policy,
                                   int64_t wait_ms);

/**
 * Sets the maximum age of messages. The queue evicts older ones, and each consumer that had not
 * read them gets a gap of cause MMQ_GAP_EXPIRED. Default 0, never.
 *
 * The queue keeps a message at least this long, and evicts it at the latest at the first check
 * after an eighth more. A thread of the queue checks every eighth of the time (at least every 30
 * s, at most every 20 ms); an opening checks, too. When the disk has no room for another segment,
 * messages in the last one live longer. A delivery in flight stays valid; if its consumer returns
 * it after its message expired, the message counts as missing, and a read reports it as a gap.
 *
 * Ages follow the system's time of day. When the clock is set forward, messages may expire
 * earlier, by no more than the change. When it is set back, they may stay longer, by no more than
 * the change.
 *
 * @param options Not NULL.
 * @param ms Milliseconds; 0 for no limit.
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_options_set_max_age_ms(struct mmq_options *options, uint64_t ms);

/**
 * Sets the permission bits of the queue's files: which other users may inspect it (read), or open
 * it (write). The directory gets the same bits, and x wherever there is r: 0750 for files of 0640.
 * Default 0: a new queue's files get the bits that the umask leaves of 0666, its directory those
 * of 0777, and an existing queue keeps the bits of its files, whatever the umask is. With a mode
 * the umask does not matter, and an existing queue gets the mode when it is opened; mmq_open
 * returns MMQ_IO when one of its files is another user's and has other bits.
 *
 * @param options Not NULL.
 * @param bits Within 0666, with the owner's 0600, in octal: 0640; or 0 for the default (checked by
 *   mmq_open).
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_options_set_mode(struct mmq_options *options, uint32_t bits);

/**
 * Sets whether mmq_open creates a missing queue, with its directory and the directories above it.
 * Default true; with false, opening it returns MMQ_NOT_FOUND.
 *
 * @param options Not NULL.
 * @param create True or false.
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_options_set_create(struct mmq_options *options, bool create);

/**
 * Sets whether mmq_open lets other processes use the queue through this one: as clients
 * (mmq_connect, mmq::Client, Client::connect in Rust, the tool mmq). It listens on a socket in the
 * queue's directory; a thread answers each client, up to 64 at a time. Default false. mmq_open
 * returns MMQ_IO where the file system knows no sockets.
 *
 * @param options Not NULL.
 * @param shared True or false.
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_options_set_shared(struct mmq_options *options, bool shared);

/**
 * Sets the permission bits of the socket of a shared queue: which other users may use the queue.
 * Default 0600: processes of the same user, and of root. They also have to get through the
 * directory (mmq_options_set_mode).
 *
 * @param options Not NULL.
 * @param bits Within 0666, with the owner's 0600, in octal: 0660 lets the group in (checked by
 *   mmq_open).
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_options_set_shared_mode(struct mmq_options *options, uint32_t bits);

/**
 * Opens the queue in a directory, and creates a missing one (see mmq_options_set_create). After a
 * close or the death of the process, opening takes milliseconds whatever the backlog. After a
 * power cut it takes as long as reading what was not flushed (see "What survives what" at the
 * top).
 *
 * @param dir Path of the directory: not NULL, not empty, any bytes a path may have. The directory
 *   belongs to the queue.
 * @param options How to open it; NULL for the defaults. The queue does not need them once the call
 *   has returned.
 * @param out Receives the queue. Not NULL. Close it with mmq_close.
 * @return MMQ_OK, MMQ_INVALID_OPTION, MMQ_LOCKED (mmq_last_error names the process that has it
 *   open), MMQ_NOT_FOUND (only with create set to false), MMQ_NOT_A_QUEUE (the directory holds
 *   files, but none of a queue; it is unchanged), MMQ_UNSUPPORTED_FORMAT, MMQ_FULL, MMQ_IO,
 *   MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_open(const char *dir, const struct mmq_options *options, struct mmq_queue **out);

/**
 * Makes everything durable, closes the files and frees the handle, whatever it returns. No other
 * thread may be in a call with this very handle. Threads that wait in a call of one of the queue's
 * consumers get MMQ_CLOSED; from now on the program can only free handles of consumers. Messages
 * stay readable until they are freed. Before it closes, the queue moves rejected messages to their
 * dead-letter queue; it starts no more moves after five seconds.
 *
 * @param queue The queue, or NULL.
 * @return MMQ_OK; MMQ_IO or MMQ_FULL (see "Full disk" at the top) when this last flush failed,
 *   MMQ_POISONED when an earlier one had failed: enqueued messages survive the process all the
 *   same; MMQ_INVALID_ARGUMENT when it is not a live handle.
 */
mmq_status mmq_close(struct mmq_queue *queue);

/**
 * Appends a message to the queue. Once the call has returned MMQ_OK, the message survives the
 * death of the process; it survives a power cut once a flush has covered it.
 *
 * @param queue Not NULL.
 * @param data The bytes, which the call copies. May be NULL when len is 0: a message may be empty.
 * @param len Bytes; at most 4294967295.
 * @param seq_out Receives the sequence number. May be NULL.
 * @return MMQ_OK; MMQ_FULL (also after waiting, with MMQ_WAIT), MMQ_MESSAGE_TOO_LARGE,
 *   MMQ_POISONED, MMQ_IO, MMQ_FORKED, MMQ_INVALID_ARGUMENT: nothing was changed. With
 *   mmq_options_set_flush_every_ops MMQ_IO may come from the flush instead: then the message is in
 *   the queue, the queue is usually poisoned, and the text of mmq_last_error says "cannot flush".
 */
mmq_status mmq_enqueue(struct mmq_queue *queue, const void *data, size_t len, uint64_t *seq_out);

/**
 * Appends all messages of an array to the queue, or none, even if the process or machine crashes.
 *
 * @param queue Not NULL.
 * @param messages The messages, whose bytes the call copies. May be NULL when count is 0.
 * @param count How many.
 * @param first_seq_out Receives the sequence number of the first message (the others follow
 *   without a gap); with no messages, the number the next message will get. May be NULL.
 * @return As mmq_enqueue: none of the messages is in the queue, or, after a failed flush, all are.
 */
mmq_status mmq_enqueue_batch(struct mmq_queue *queue,
                             const struct mmq_slice *messages,
                             size_t count,
                             uint64_t *first_seq_out);

/**
 * Appends one message whose bytes lie in several buffers, in their order.
 *
 * @param queue Not NULL.
 * @param parts The buffers, whose bytes the call copies. May be NULL when count is 0 (an empty
 *   message).
 * @param count How many.
 * @param seq_out Receives the sequence number. May be NULL.
 * @return As mmq_enqueue; MMQ_MESSAGE_TOO_LARGE also when the parts are too long together.
 */
mmq_status mmq_enqueue_parts(struct mmq_queue *queue,
                             const struct mmq_slice *parts,
                             size_t count,
                             uint64_t *seq_out);

/**
 * Returns the next message, which stays in the queue. The first read creates the queue's own
 * (default) consumer, at the oldest message in the queue.
 *
 * @param queue Not NULL.
 * @param out Receives the message; free it with mmq_message_free. Not NULL.
 * @return MMQ_OK, MMQ_EMPTY, MMQ_GAP, MMQ_FULL (only from the very first read: no room for the
 *   queue's own consumer), MMQ_IO, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_peek(struct mmq_queue *queue, struct mmq_message **out);

/**
 * Takes the next message. Once the call has returned, the message is not delivered again after the
 * death of the process; after a power cut, messages taken since the last flush may be delivered
 * again. MMQ_IO means that the call took no message. When a flush that the options ask for fails
 * after the read, the call still returns the message, and the next call that writes returns
 * MMQ_POISONED.
 *
 * @param queue Not NULL.
 * @param out Receives the message; free it with mmq_message_free. Not NULL.
 * @return As mmq_peek.
 */
mmq_status mmq_dequeue(struct mmq_queue *queue, struct mmq_message **out);

/**
 * Takes the next message, and waits for one. Does not poll.
 *
 * @param queue Not NULL.
 * @param timeout_ms Milliseconds to wait; 0: not at all; below 0: for ever.
 * @param out Receives the message; free it with mmq_message_free. Not NULL.
 * @return As mmq_dequeue, but MMQ_TIMED_OUT where that returns MMQ_EMPTY; MMQ_INTERRUPTED by
 *   mmq_interrupt.
 */
mmq_status mmq_dequeue_timeout(struct mmq_queue *queue,
                               int64_t timeout_ms,
                               struct mmq_message **out);

/**
 * Copies the next message, which stays in the queue.
 *
 * @param queue Not NULL.
 * @param buf Receives the bytes. After an error other than MMQ_BUFFER_TOO_SMALL its content is
 *   undefined. May be NULL when cap is 0.
 * @param cap Size of buf in bytes.
 * @param len_out Receives the length of the message, also with MMQ_BUFFER_TOO_SMALL. Not NULL.
 * @param seq_out Receives the sequence number. May be NULL.
 * @return As mmq_peek; MMQ_BUFFER_TOO_SMALL (buf is unchanged).
 */
mmq_status mmq_peek_into(struct mmq_queue *queue,
                         void *buf,
                         size_t cap,
                         size_t *len_out,
                         uint64_t *seq_out);

/**
 * Takes the next message and copies it. The call does not take a message that does not fit: it
 * writes the length to len_out, and the next call gets the same message.
 *
 * @param queue Not NULL.
 * @param buf Receives the bytes. After an error other than MMQ_BUFFER_TOO_SMALL its content is
 *   undefined. May be NULL when cap is 0.
 * @param cap Size of buf in bytes.
 * @param len_out Receives the length of the message, also with MMQ_BUFFER_TOO_SMALL. Not NULL.
 * @param seq_out Receives the sequence number. May be NULL.
 * @return As mmq_dequeue; MMQ_BUFFER_TOO_SMALL (no message was taken, buf is unchanged).
 */
mmq_status mmq_dequeue_into(struct mmq_queue *queue,
                            void *buf,
                            size_t cap,
                            size_t *len_out,
                            uint64_t *seq_out);

/**
 * Skips the next message: takes it without reading or checking its bytes.
 *
 * @param queue Not NULL.
 * @param seq_out Receives the sequence number. May be NULL.
 * @return As mmq_dequeue.
 */
mmq_status mmq_skip(struct mmq_queue *queue, uint64_t *seq_out);

/**
 * Returns the gap of the latest MMQ_GAP that this thread got from a read through this handle, or,
 * if it got none, that any thread got.
 *
 * @param queue Not NULL.
 * @param out Receives the gap. Not NULL.
 * @return MMQ_OK, MMQ_EMPTY when there was none, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_last_gap(struct mmq_queue *queue, struct mmq_gap *out);

/**
 * Returns the directory of a queue, as the program passed it to mmq_open.
 *
 * @param queue Not NULL.
 * @return Text, valid until mmq_close. NULL when queue is not a live handle.
 */
const char *mmq_path(const struct mmq_queue *queue);

/**
 * Counts the messages that wait for the queue's own (default) consumer, including those in flight.
 * Without a default consumer: the messages that some consumer has not finished. Without any
 * consumer: all messages in the queue.
 *
 * @param queue Not NULL.
 * @param out Receives the number. Not NULL.
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_len(const struct mmq_queue *queue, uint64_t *out);

/**
 * Tells whether no message waits for the queue's own (default) consumer.
 *
 * @param queue Not NULL.
 * @param out Receives true or false. Not NULL.
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_is_empty(const struct mmq_queue *queue, bool *out);

/**
 * Makes everything durable that was enqueued, taken or acknowledged before: once the call has
 * returned MMQ_OK, it survives a power cut. Threads that flush at the same time share one sync.
 *
 * @param queue Not NULL.
 * @return MMQ_OK; MMQ_IO when a sync failed: all writing returns MMQ_POISONED until the queue is
 *   opened again; MMQ_FULL (on file systems that copy what is overwritten: see "Full disk" at the
 *   top): the next mmq_flush tries again; MMQ_POISONED (mmq_last_error has the reason),
 *   MMQ_FORKED, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_flush(struct mmq_queue *queue);

/**
 * Returns the first sequence number not yet known to be durable.
 *
 * @param queue Not NULL.
 * @param out Receives the number. Not NULL.
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_durable_seq(const struct mmq_queue *queue, uint64_t *out);

/**
 * Makes sure that a message is durable: flushes if it is not yet. Threads that wait at the same
 * time share one sync.
 *
 * @param queue Not NULL.
 * @param seq The message's sequence number.
 * @return As mmq_flush, but MMQ_OK for a message that is durable already; MMQ_NOT_FOUND for a
 *   number that no message has got yet; MMQ_INTERRUPTED by mmq_interrupt.
 */
mmq_status mmq_wait_durable(struct mmq_queue *queue, uint64_t seq);

/**
 * Returns the bytes of a message. They stay in place, unchanged, until mmq_message_free, whatever
 * happens to the queue. A forked child must not read them: there they may change at any time.
 *
 * @param message Not NULL.
 * @return The first byte; not to be read when the length is 0. NULL when message is not a live
 *   handle.
 */
const uint8_t *mmq_message_data(const struct mmq_message *message);

/**
 * Returns the length of a message.
 *
 * @param message Not NULL.
 * @return Bytes. 0 when message is not a live handle.
 */
size_t mmq_message_len(const struct mmq_message *message);

/**
 * Returns the sequence number of a message, which mmq_enqueue assigned. It identifies the message
 * and is never used twice in a queue.
 *
 * @param message Not NULL.
 * @return The number. UINT64_MAX, which no message has, when message is not a live handle.
 */
uint64_t mmq_message_seq(const struct mmq_message *message);

/**
 * Frees a message. Allowed from any thread, and after mmq_close. It does not change the consumer's
 * position.
 *
 * @param message From mmq_peek, mmq_dequeue or the like, or NULL.
 */
void mmq_message_free(struct mmq_message *message);

/**
 * Opens the consumer of that name. The first call with a name creates the consumer, at the oldest
 * message in the queue, and stores its name and position. The queue frees the space of messages
 * that every consumer has passed.
 *
 * While a queue has no consumer, it keeps all messages. From the first consumer on, it keeps only
 * what its consumers have not passed: so open all consumers before the first one reads. (The
 * default consumer, which the queue's first read creates, is one of them.)
 *
 * @param queue Not NULL.
 * @param name 1 to 255 bytes of UTF-8. Not NULL.
 * @param out Receives the handle; free it with mmq_consumer_free. Not NULL.
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT, MMQ_FULL or MMQ_IO when there is no room for another
 *   consumer, MMQ_FORKED.
 */
mmq_status mmq_consumer_open(struct mmq_queue *queue, const char *name, struct mmq_consumer **out);

/**
 * Opens the consumer of that name (see mmq_consumer_open), and creates a missing one where start
 * says, in one step: it neither misses nor reads twice a message enqueued meanwhile. An existing
 * consumer keeps its position.
 *
 * While a queue has no consumer, it keeps all messages: open all consumers before the first one
 * reads. If the first consumer starts behind the oldest message, the queue discards the messages
 * before it; mmq_stats.unclaimed counts them.
 *
 * @param queue Not NULL.
 * @param name 1 to 255 bytes of UTF-8. Not NULL.
 * @param start Where a new consumer begins.
 * @param seq The sequence number for MMQ_START_SEQ; ignored otherwise.
 * @param out Receives the handle; free it with mmq_consumer_free. Not NULL.
 * @return As mmq_consumer_open; MMQ_NOT_FOUND for a number that no message has got yet.
 */
mmq_status mmq_consumer_open_at(struct mmq_queue *queue,
                                const char *name,
                                mmq_start start,
                                uint64_t seq,
                                struct mmq_consumer **out);

/**
 * Creates a consumer at the position of another one. The new consumer also receives the messages
 * that the other one has not acknowledged.
 *
 * @param consumer Not NULL.
 * @param name The new consumer's name: 1 to 255 bytes of UTF-8, not in use yet. Not NULL.
 * @param out Receives the handle; free it with mmq_consumer_free. Not NULL.
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT (also for a name already in use), MMQ_FULL or MMQ_IO when
 *   there is no room for another consumer, MMQ_CLOSED once the queue was closed, MMQ_FORKED.
 */
mmq_status mmq_consumer_fork(const struct mmq_consumer *consumer,
                             const char *name,
                             struct mmq_consumer **out);

/**
 * Frees a handle. The consumer itself stays in the queue (mmq_consumer_remove removes it). Allowed
 * after mmq_close.
 *
 * @param consumer From mmq_consumer_open or mmq_consumer_fork, or NULL.
 */
void mmq_consumer_free(struct mmq_consumer *consumer);

/**
 * Removes a consumer: the queue no longer keeps messages for it. Calls through its handles return
 * MMQ_NOT_FOUND from now on; free the handles as usual. The removal survives the death of the
 * process, and a power cut once a flush has covered the call. The empty name removes the queue's
 * own (default) consumer: calls that wait in it return MMQ_NOT_FOUND, and the next reading call
 * creates it again, at the oldest message in the queue.
 *
 * @param queue Not NULL.
 * @param name The consumer's name. Not NULL.
 * @return MMQ_OK, MMQ_NOT_FOUND when no consumer has that name, MMQ_FORKED, MMQ_INVALID_ARGUMENT;
 *   MMQ_IO when a sync failed, as in mmq_flush (the consumer is removed all the same).
 */
mmq_status mmq_consumer_remove(struct mmq_queue *queue, const char *name);

/**
 * Returns the consumer's next message, which stays in the queue (see mmq_peek).
 *
 * @param consumer Not NULL.
 * @param out Receives the message; free it with mmq_message_free. Not NULL.
 * @return As mmq_peek; MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the queue was
 *   closed.
 */
mmq_status mmq_consumer_peek(struct mmq_consumer *consumer, struct mmq_message **out);

/**
 * Takes the consumer's next message (see mmq_dequeue).
 *
 * @param consumer Not NULL.
 * @param out Receives the message; free it with mmq_message_free. Not NULL.
 * @return As mmq_dequeue; MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the queue
 *   was closed.
 */
mmq_status mmq_consumer_dequeue(struct mmq_consumer *consumer, struct mmq_message **out);

/**
 * Takes the consumer's next message, and waits for one (see mmq_dequeue_timeout).
 *
 * @param consumer Not NULL.
 * @param timeout_ms Milliseconds to wait; 0: not at all; below 0: for ever.
 * @param out Receives the message; free it with mmq_message_free. Not NULL.
 * @return As mmq_dequeue_timeout; MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the
 *   queue was closed, also to a call that waits.
 */
mmq_status mmq_consumer_dequeue_timeout(struct mmq_consumer *consumer,
                                        int64_t timeout_ms,
                                        struct mmq_message **out);

/**
 * Copies the consumer's next message, which stays in the queue (see mmq_peek_into).
 *
 * @param consumer Not NULL.
 * @param buf Receives the bytes. May be NULL when cap is 0.
 * @param cap Size of buf in bytes.
 * @param len_out Receives the length of the message, also with MMQ_BUFFER_TOO_SMALL. Not NULL.
 * @param seq_out Receives the sequence number. May be NULL.
 * @return As mmq_peek_into; MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the queue
 *   was closed.
 */
mmq_status mmq_consumer_peek_into(struct mmq_consumer *consumer,
                                  void *buf,
                                  size_t cap,
                                  size_t *len_out,
                                  uint64_t *seq_out);

/**
 * Takes the consumer's next message and copies it (see mmq_dequeue_into).
 *
 * @param consumer Not NULL.
 * @param buf Receives the bytes. May be NULL when cap is 0.
 * @param cap Size of buf in bytes.
 * @param len_out Receives the length of the message, also with MMQ_BUFFER_TOO_SMALL. Not NULL.
 * @param seq_out Receives the sequence number. May be NULL.
 * @return As mmq_dequeue_into; MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the
 *   queue was closed.
 */
mmq_status mmq_consumer_dequeue_into(struct mmq_consumer *consumer,
                                     void *buf,
                                     size_t cap,
                                     size_t *len_out,
                                     uint64_t *seq_out);

/**
 * Skips the consumer's next message: takes it without reading its bytes (see mmq_skip).
 *
 * @param consumer Not NULL.
 * @param seq_out Receives the sequence number. May be NULL.
 * @return As mmq_skip; MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the queue was
 *   closed.
 */
mmq_status mmq_consumer_skip(struct mmq_consumer *consumer, uint64_t *seq_out);

/**
 * Returns the gap of the latest MMQ_GAP that a read through this handle returned (see
 * mmq_last_gap).
 *
 * @param consumer Not NULL.
 * @param out Receives the gap. Not NULL.
 * @return MMQ_OK, MMQ_EMPTY when there was none, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_consumer_last_gap(struct mmq_consumer *consumer, struct mmq_gap *out);

/**
 * Returns the name of a consumer.
 *
 * @param consumer Not NULL.
 * @return UTF-8 text, valid until mmq_consumer_free. NULL when consumer is not a live handle.
 */
const char *mmq_consumer_name(const struct mmq_consumer *consumer);

/**
 * Lists the names of all consumers, in the order of their bytes. The queue's own (default)
 * consumer has no name. (Names with a zero byte, which only a Rust program can give, are omitted.)
 *
 * @param queue Not NULL.
 * @param buf Receives the names one after another, each ended by a zero byte. May be NULL when cap
 *   is 0.
 * @param cap Size of buf in bytes.
 * @param len_out Receives the length of all names together in bytes, zero bytes included, also
 *   with MMQ_BUFFER_TOO_SMALL. Not NULL.
 * @return MMQ_OK, MMQ_BUFFER_TOO_SMALL (buf is unchanged), MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_consumers(const struct mmq_queue *queue, char *buf, size_t cap, size_t *len_out);

/**
 * Counts the messages that wait for this consumer, including those in flight.
 *
 * @param consumer Not NULL.
 * @param out Receives the number. Not NULL.
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_consumer_len(const struct mmq_consumer *consumer, uint64_t *out);

/**
 * Tells whether no message waits for this consumer, and none is in flight.
 *
 * @param consumer Not NULL.
 * @param out Receives true or false. Not NULL.
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_consumer_is_empty(const struct mmq_consumer *consumer, bool *out);

/**
 * Moves a consumer to a message, backward or forward. The sequence number after the last message
 * leads to the end of the queue, a number within a gap to that gap. The move cancels earlier
 * deliveries: to acknowledge or return them changes nothing any more.
 *
 * @param consumer Not NULL.
 * @param seq The message's sequence number.
 * @return MMQ_OK, MMQ_NOT_FOUND when that message is not in the queue (yet or any more), or the
 *   consumer was removed, MMQ_IO (messages acknowledged behind the position may be delivered again
 *   after the next opening), MMQ_CLOSED once the queue was closed, MMQ_FORKED,
 *   MMQ_INVALID_ARGUMENT. The position changes only with MMQ_OK.
 */
mmq_status mmq_consumer_seek(struct mmq_consumer *consumer, uint64_t seq);

/**
 * Opens an iterator over the messages that wait for the queue's own (default) consumer, from the
 * next one on. The iterator consumes nothing and keeps nothing in the queue: it skips messages
 * that another read takes meanwhile.
 *
 * @param queue Not NULL.
 * @param out Receives the iterator; free it with mmq_iter_free. Not NULL.
 * @return MMQ_OK, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_iter_open(struct mmq_queue *queue, struct mmq_iter **out);

/**
 * Opens an iterator over the messages that wait for this consumer (see mmq_iter_open).
 *
 * @param consumer Not NULL.
 * @param out Receives the iterator; free it with mmq_iter_free. Not NULL.
 * @return MMQ_OK, MMQ_CLOSED once the queue was closed, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_consumer_iter_open(struct mmq_consumer *consumer, struct mmq_iter **out);

/**
 * Delivers the next message, for work that may fail. mmq_delivery_ack acknowledges it; until then
 * the consumer's stored position does not pass it. mmq_delivery_nack, mmq_delivery_free or the
 * death of the process return it to the queue. Returned messages are delivered first. Several
 * threads may receive at the same time: each message is with only one of them at a time.
 *
 * @param queue Not NULL.
 * @param out Receives the delivery; end it with mmq_delivery_ack, _nack or _free. Not NULL.
 * @return As mmq_peek; MMQ_EMPTY also while as many messages are in flight as
 *   mmq_set_max_in_flight allows.
 */
mmq_status mmq_receive(struct mmq_queue *queue, struct mmq_delivery **out);

/**
 * Delivers the next message, for work that may fail, and waits for one (see mmq_receive). Does not
 * poll.
 *
 * @param queue Not NULL.
 * @param timeout_ms Milliseconds to wait; 0: not at all; below 0: for ever.
 * @param out Receives the delivery; end it with mmq_delivery_ack, _nack or _free. Not NULL.
 * @return As mmq_receive, but MMQ_TIMED_OUT where that returns MMQ_EMPTY; MMQ_INTERRUPTED by
 *   mmq_interrupt.
 */
mmq_status mmq_receive_timeout(struct mmq_queue *queue,
                               int64_t timeout_ms,
                               struct mmq_delivery **out);

/**
 * Sets how many messages may be in flight (received, but neither acknowledged nor returned) at a
 * time. The limit is not stored: every opening begins without one.
 *
 * @param queue Not NULL.
 * @param messages At least 1, or 0 for no limit.
 * @return MMQ_OK, MMQ_FULL or MMQ_IO when there is no room for the queue's own consumer,
 *   MMQ_FORKED, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_set_max_in_flight(struct mmq_queue *queue, uint32_t messages);

/**
 * Counts the messages of the queue's own (default) consumer that are in flight: received, but
 * neither acknowledged nor returned.
 *
 * @param queue Not NULL.
 * @param out Receives the number. Not NULL.
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_in_flight(const struct mmq_queue *queue, uint64_t *out);

/**
 * Returns a descriptor for poll, epoll or kqueue. It is readable while a message or an unreported
 * gap waits for the queue's own (default) consumer, and once the queue is closed. Do not read from
 * it, write to it or close it. Read the queue until MMQ_EMPTY before waiting on it again.
 *
 * @param queue Not NULL.
 * @param out Receives the descriptor. It is the library's, and valid until the queue is closed.
 *   Not NULL.
 * @return MMQ_OK, MMQ_IO when the system has no descriptor left, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_ready_fd(struct mmq_queue *queue, int *out);

/**
 * Ends all waits, and leaves the queue open: every waiting call that began before this one
 * (mmq_dequeue_timeout, mmq_receive_timeout and those of consumers, an enqueue with MMQ_WAIT,
 * mmq_wait_durable) returns MMQ_INTERRUPTED. A call that begins later waits again. Descriptors
 * become readable. No message is lost: one that arrives at the same time stays for the next read.
 *
 * @param queue Not NULL.
 * @return MMQ_OK, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_interrupt(struct mmq_queue *queue);

/**
 * Delivers this consumer's next message, for work that may fail (see mmq_receive).
 *
 * @param consumer Not NULL.
 * @param out Receives the delivery; end it with mmq_delivery_ack, _nack or _free. Not NULL.
 * @return As mmq_receive; MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the queue
 *   was closed.
 */
mmq_status mmq_consumer_receive(struct mmq_consumer *consumer, struct mmq_delivery **out);

/**
 * Delivers this consumer's next message, and waits for one (see mmq_receive_timeout).
 *
 * @param consumer Not NULL.
 * @param timeout_ms Milliseconds to wait; 0: not at all; below 0: for ever.
 * @param out Receives the delivery; end it with mmq_delivery_ack, _nack or _free. Not NULL.
 * @return As mmq_receive_timeout; MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the
 *   queue was closed.
 */
mmq_status mmq_consumer_receive_timeout(struct mmq_consumer *consumer,
                                        int64_t timeout_ms,
                                        struct mmq_delivery **out);

/**
 * Sets how many messages of this consumer may be in flight at a time (see mmq_set_max_in_flight).
 *
 * @param consumer Not NULL.
 * @param messages At least 1, or 0 for no limit.
 * @return MMQ_OK, MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the queue was
 *   closed, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_consumer_set_max_in_flight(struct mmq_consumer *consumer, uint32_t messages);

/**
 * Returns a descriptor that is readable while a message or an unreported gap waits for this
 * consumer (see mmq_ready_fd).
 *
 * @param consumer Not NULL.
 * @param out Receives the descriptor. It is the library's, and valid until the queue is closed.
 *   Not NULL.
 * @return MMQ_OK, MMQ_IO when the system has no descriptor left, MMQ_NOT_FOUND once the consumer
 *   was removed, MMQ_CLOSED once the queue was closed, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_consumer_ready_fd(struct mmq_consumer *consumer, int *out);

/**
 * Counts the messages of this consumer that are in flight: received, but neither acknowledged nor
 * returned.
 *
 * @param consumer Not NULL.
 * @param out Receives the number. Not NULL.
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_consumer_in_flight(const struct mmq_consumer *consumer, uint64_t *out);

/**
 * Takes up to max messages without waiting for more to arrive. The consumer's place is stored
 * once, at the end of the call: a process that dies before gets all of them again. Where another
 * thread waits for the consumer, the call may take fewer messages than there are.
 *
 * @param queue Not NULL.
 * @param out An array of max elements, which receives the messages; free each with
 *   mmq_message_free. May be NULL when max is 0.
 * @param max The most messages to take.
 * @param count_out Receives the number of messages taken. Not NULL.
 * @return As mmq_dequeue; MMQ_OK means at least one message, unless max is 0. The next call
 *   reports a gap or an error behind the first message.
 */
mmq_status mmq_dequeue_batch(struct mmq_queue *queue,
                             struct mmq_message **out,
                             size_t max,
                             size_t *count_out);

/**
 * Takes up to max messages without waiting for more to arrive, and copies them: their bytes lie
 * one behind the other in buf. Takes only those that fit, and leaves the next one in the queue.
 * Nothing is to be freed.
 *
 * mmq_copied_message got[64];
 * status = mmq_dequeue_batch_into(queue, buf, sizeof buf, got, 64, &count, &len);
 * if (status == MMQ_OK) for (at = 0; at < count; at++) use(got[at].data, got[at].len);
 *
 * @param queue Not NULL.
 * @param buf Receives the bytes. After an error other than MMQ_BUFFER_TOO_SMALL its content is
 *   undefined. May be NULL when cap is 0.
 * @param cap Size of buf in bytes.
 * @param out An array of max elements, which receives where each message lies. After an error its
 *   content is undefined. May be NULL when max is 0.
 * @param max The most messages to take.
 * @param count_out Receives the number of messages taken. Not NULL.
 * @param len_out Receives how many bytes of buf the messages take; with MMQ_BUFFER_TOO_SMALL, the
 *   length of the next message. Not NULL.
 * @return As mmq_dequeue_batch; MMQ_BUFFER_TOO_SMALL when the next message does not fit buf (no
 *   message was taken, buf is unchanged).
 */
mmq_status mmq_dequeue_batch_into(struct mmq_queue *queue,
                                  void *buf,
                                  size_t cap,
                                  struct mmq_copied_message *out,
                                  size_t max,
                                  size_t *count_out,
                                  size_t *len_out);

/**
 * Takes up to max of the consumer's messages, without waiting (see mmq_dequeue_batch).
 *
 * @param consumer Not NULL.
 * @param out An array of max elements, for the messages; free each with mmq_message_free. May
 *   be NULL when max is 0.
 * @param max How many to take at most.
 * @param count_out Receives their number. Not NULL.
 * @return As mmq_dequeue_batch; MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the
 *   queue was closed.
 */
mmq_status mmq_consumer_dequeue_batch(struct mmq_consumer *consumer,
                                      struct mmq_message **out,
                                      size_t max,
                                      size_t *count_out);

/**
 * Takes up to max of the consumer's messages, without waiting, and copies them (see
 * mmq_dequeue_batch_into).
 *
 * @param consumer Not NULL.
 * @param buf Receives the bytes. May be NULL when cap is 0.
 * @param cap Size of buf in bytes.
 * @param out An array of max elements, which receives where each message lies. May be NULL when
 *   max is 0.
 * @param max The most messages to take.
 * @param count_out Receives the number of messages taken. Not NULL.
 * @param len_out Receives how many bytes of buf the messages take; with MMQ_BUFFER_TOO_SMALL, the
 *   length of the next message. Not NULL.
 * @return As mmq_dequeue_batch_into; MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once
 *   the queue was closed.
 */
mmq_status mmq_consumer_dequeue_batch_into(struct mmq_consumer *consumer,
                                           void *buf,
                                           size_t cap,
                                           struct mmq_copied_message *out,
                                           size_t max,
                                           size_t *count_out,
                                           size_t *len_out);

/**
 * Delivers up to max messages in one step, without waiting for more to arrive (see mmq_receive).
 * mmq_delivery_ack_batch acknowledges them in one.
 *
 * @param queue Not NULL.
 * @param out An array of max elements, which receives the deliveries. May be NULL when max is 0.
 * @param max The most messages to deliver.
 * @param count_out Receives the number of deliveries. Not NULL.
 * @return As mmq_receive; MMQ_OK means at least one delivery, unless max is 0. The next call
 *   reports a gap or an error behind the first message.
 */
mmq_status mmq_receive_batch(struct mmq_queue *queue,
                             struct mmq_delivery **out,
                             size_t max,
                             size_t *count_out);

/**
 * Delivers up to max of the consumer's messages in one step (see mmq_receive_batch).
 *
 * @param consumer Not NULL.
 * @param out An array of max elements, which receives the deliveries. May be NULL when max is 0.
 * @param max The most messages to deliver.
 * @param count_out Receives the number of deliveries. Not NULL.
 * @return As mmq_receive_batch; MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the
 *   queue was closed.
 */
mmq_status mmq_consumer_receive_batch(struct mmq_consumer *consumer,
                                      struct mmq_delivery **out,
                                      size_t max,
                                      size_t *count_out);

/**
 * Returns the next message ahead. At the end it returns MMQ_EMPTY; a later call continues with new
 * messages. After an error (16 and above) the iterator has ended for good.
 *
 * @param iter Not NULL.
 * @param out Receives the message; free it with mmq_message_free. Not NULL.
 * @return MMQ_OK, MMQ_EMPTY, MMQ_GAP (not counted in the figures: a read reports the gap to the
 *   consumer when it comes there), MMQ_IO, MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED
 *   once the queue was closed, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_iter_next(struct mmq_iter *iter, struct mmq_message **out);

/**
 * Returns the gap of the latest MMQ_GAP that this iterator returned (see mmq_last_gap).
 *
 * @param iter Not NULL.
 * @param out Receives the gap. Not NULL.
 * @return MMQ_OK, MMQ_EMPTY when there was none, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_iter_last_gap(struct mmq_iter *iter, struct mmq_gap *out);

/**
 * Frees an iterator. Allowed after mmq_close.
 *
 * @param iter From mmq_iter_open or mmq_consumer_iter_open, or NULL.
 */
void mmq_iter_free(struct mmq_iter *iter);

/**
 * Returns the bytes of a delivery. They stay in place until it is acknowledged, returned to the
 * queue or freed.
 *
 * @param delivery Not NULL.
 * @return The first byte; not to be read when the length is 0. NULL when delivery is not a live
 *   handle.
 */
const uint8_t *mmq_delivery_data(const struct mmq_delivery *delivery);

/**
 * Returns the length of a delivery's message.
 *
 * @param delivery Not NULL.
 * @return Bytes. 0 when delivery is not a live handle.
 */
size_t mmq_delivery_len(const struct mmq_delivery *delivery);

/**
 * Returns the sequence number of a delivery's message.
 *
 * @param delivery Not NULL.
 * @return The number. UINT64_MAX, which no message has, when delivery is not a live handle.
 */
uint64_t mmq_delivery_seq(const struct mmq_delivery *delivery);

/**
 * Returns how often the message was delivered since the queue was opened, this time included. With
 * mmq_set_redelivery it also counts deliveries of earlier openings.
 *
 * @param delivery Not NULL.
 * @return 1 the first time. 0 when delivery is not a live handle.
 */
uint32_t mmq_delivery_attempts(const struct mmq_delivery *delivery);

/**
 * Tells whether a delivery comes from the backlog of lanes (mmq_lanes): the fresh lane skipped its
 * message, or delivered it before the last jump.
 *
 * @param delivery Not NULL.
 * @return True if so. False when delivery is not a live handle.
 */
bool mmq_delivery_is_backlog(const struct mmq_delivery *delivery);

/**
 * Acknowledges the message: the work is done, and this consumer does not receive the message
 * again. Frees the delivery, whatever it returns. Any thread may acknowledge deliveries, in any
 * order. The acknowledgement survives the death of the process and, once flushed, a power cut.
 *
 * While an older message is still unacknowledged, the queue stores the acknowledged numbers behind
 * it as ranges: for each consumer at least the lowest 22 (114 where they lie close together).
 * After a crash the consumer receives the messages in further ranges again, even if the
 * acknowledgements were flushed. The same holds for all messages acknowledged ahead of an older
 * one when the index file has no row of ranges for the consumer (it has six) and cannot grow.
 *
 * @param delivery Not NULL.
 * @return MMQ_OK; MMQ_CLOSED when the queue was closed (the message is delivered again after the
 *   next opening), MMQ_EXPIRED when its lease has ended, MMQ_NOT_FOUND when the consumer was
 *   removed, MMQ_FORKED; MMQ_IO from a flush that the options ask for (the message is acknowledged
 *   all the same); MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_delivery_ack(struct mmq_delivery *delivery);

/**
 * Acknowledges many deliveries in one step (see mmq_delivery_ack), and frees all of them, whatever
 * it returns. When the process dies meanwhile, some of the messages may come again.
 *
 * @param deliveries An array of count deliveries, each once. May be NULL when count is 0.
 * @param count The number of deliveries.
 * @return As mmq_delivery_ack: the first error. The other deliveries are acknowledged all the
 *   same, except where the queue was closed or the consumer removed.
 */
mmq_status mmq_delivery_ack_batch(struct mmq_delivery **deliveries, size_t count);

/**
 * Returns the message to the queue, because the work was not done: it will be the next one
 * delivered. Frees the delivery.
 *
 * @param delivery Not NULL.
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_delivery_nack(struct mmq_delivery *delivery);

/**
 * Returns the message to the queue (see mmq_delivery_nack) and frees the delivery. Does nothing
 * with NULL, so that clean-up code can always call it. Allowed after mmq_close.
 *
 * @param delivery From mmq_receive or the like, or NULL.
 */
void mmq_delivery_free(struct mmq_delivery *delivery);

/**
 * Sets when the queue's own (default) consumer receives messages again that it did not
 * acknowledge. The rules are not stored: each opening begins without them.
 *
 * From this call on the queue stores, before it delivers a message, that the message is in flight,
 * and how often it came back, so that mmq_delivery_attempts also counts earlier openings. The
 * death of the process counts as one attempt for each message that was in flight. Four consumers
 * of a queue have a row in the index for this, each with room for at least 36 messages; for
 * further consumers and messages, attempts of earlier openings are not counted.
 *
 * @param queue Not NULL.
 * @param lease_ms After so many milliseconds without acknowledgement or return, the queue takes
 *   the message back; a later acknowledgement returns MMQ_EXPIRED. 0 or below: never.
 * @param first_delay_ms The queue delivers a returned message again after so many milliseconds,
 *   and twice as many after each further return; other messages overtake it. 0 or below: at once.
 * @param max_delay_ms The longest of these delays; 0 or below: the first one.
 * @param max_attempts After so many deliveries without an acknowledgement the queue rejects the
 *   message, as mmq_delivery_reject does. 0: never.
 * @param dead The dead-letter queue that gets rejected messages. With NULL, rejected messages are
 *   discarded and reported as a gap (MMQ_GAP_REJECTED). While it is full or closed, they stay
 *   here, and this queue tries again. Close it after this queue.
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
 * Sets when this consumer receives messages again that it did not acknowledge (see
 * mmq_set_redelivery).
 *
 * @param consumer Not NULL.
 * @param lease_ms See mmq_set_redelivery.
 * @param first_delay_ms See mmq_set_redelivery.
 * @param max_delay_ms See mmq_set_redelivery.
 * @param max_attempts See mmq_set_redelivery.
 * @param dead See mmq_set_redelivery. May be NULL.
 * @return As mmq_set_redelivery; MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the
 *   queue was closed.
 */
mmq_status mmq_consumer_set_redelivery(struct mmq_consumer *consumer,
                                       int64_t lease_ms,
                                       int64_t first_delay_ms,
                                       int64_t max_delay_ms,
                                       uint32_t max_attempts,
                                       struct mmq_queue *dead);

/**
 * Returns the message to the queue, which delivers it again after a delay. Other messages overtake
 * it meanwhile. Frees the delivery. A new opening of the queue ends the delay.
 *
 * @param delivery Not NULL.
 * @param delay_ms Milliseconds; 0 or below: at once.
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_delivery_nack_after(struct mmq_delivery *delivery, int64_t delay_ms);

/**
 * Makes the lease of a delivery end so many milliseconds from now, for work that takes longer. A
 * delivery without a lease stays without one.
 *
 * @param delivery Not NULL.
 * @param ms Milliseconds, above 0.
 * @return MMQ_OK; MMQ_EXPIRED when the lease has ended (another worker gets, or got, the message;
 *   free the delivery), MMQ_CLOSED, MMQ_NOT_FOUND when the consumer was removed, MMQ_FORKED,
 *   MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_delivery_extend(const struct mmq_delivery *delivery, int64_t ms);

/**
 * Rejects the message: this consumer does not receive it again. The queue moves it to the
 * consumer's dead-letter queue, and acknowledges it here once it is durable there; without a
 * dead-letter queue it is discarded and reported as a gap (MMQ_GAP_REJECTED). Frees the delivery,
 * whatever it returns.
 *
 * @param delivery Not NULL.
 * @return MMQ_OK; otherwise as mmq_delivery_ack, and MMQ_EXPIRED when the lease has ended.
 */
mmq_status mmq_delivery_reject(struct mmq_delivery *delivery);

/**
 * Reads a consumer in two lanes from now on. A second call, also through another handle, only
 * changes how the lanes are read: all handles share the consumer's two lanes. The options are not
 * stored. mmq_consumer_receive and the consumer's other reads take the oldest message of both
 * lanes. A seek adds nothing to the backlog.
 *
 * @param consumer Not NULL. It may be freed before the lanes are.
 * @param options How the lanes are read. May be NULL: the defaults.
 * @param out Receives the handle; free it with mmq_lanes_free. Not NULL.
 * @return MMQ_OK; MMQ_INVALID_ARGUMENT, also for an unknown number for an enum and when no message
 *   could be fresh; MMQ_IO when the library cannot read which messages an earlier run skipped,
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
 * Delivers the next message of the two lanes, in the proportion of their shares (see
 * mmq_consumer_receive). mmq_delivery_is_backlog tells from which lane a message comes.
 *
 * @param lanes Not NULL.
 * @param out Receives the delivery; end it with mmq_delivery_ack, _nack or _free. Not NULL.
 * @return As mmq_consumer_receive; MMQ_EMPTY when neither lane has a message that may be delivered
 *   now.
 */
mmq_status mmq_lanes_receive(struct mmq_lanes *lanes, struct mmq_delivery **out);

/**
 * Delivers the next message of the fresh lane.
 *
 * @param lanes Not NULL.
 * @param out Receives the delivery; end it with mmq_delivery_ack, _nack or _free. Not NULL.
 * @return As mmq_lanes_receive.
 */
mmq_status mmq_lanes_receive_fresh(struct mmq_lanes *lanes, struct mmq_delivery **out);

/**
 * Delivers the next message of the backlog, if backlog_rate allows one now.
 *
 * @param lanes Not NULL.
 * @param out Receives the delivery; end it with mmq_delivery_ack, _nack or _free. Not NULL.
 * @return As mmq_lanes_receive.
 */
mmq_status mmq_lanes_receive_backlog(struct mmq_lanes *lanes, struct mmq_delivery **out);

/**
 * Delivers the next message of the two lanes, and waits for one, also until backlog_rate allows
 * one (see mmq_lanes_receive). Does not poll.
 *
 * @param lanes Not NULL.
 * @param timeout_ms Milliseconds to wait; 0: not at all; below 0: for ever.
 * @param out Receives the delivery; end it with mmq_delivery_ack, _nack or _free. Not NULL.
 * @return As mmq_consumer_receive_timeout.
 */
mmq_status mmq_lanes_receive_timeout(struct mmq_lanes *lanes,
                                     int64_t timeout_ms,
                                     struct mmq_delivery **out);

/**
 * Delivers the next message of the fresh lane, and waits for one.
 *
 * @param lanes Not NULL.
 * @param timeout_ms Milliseconds to wait; 0: not at all; below 0: for ever.
 * @param out Receives the delivery; end it with mmq_delivery_ack, _nack or _free. Not NULL.
 * @return As mmq_lanes_receive_timeout.
 */
mmq_status mmq_lanes_receive_fresh_timeout(struct mmq_lanes *lanes,
                                           int64_t timeout_ms,
                                           struct mmq_delivery **out);

/**
 * Delivers the next message of the backlog, and waits for one, also until backlog_rate allows one.
 *
 * @param lanes Not NULL.
 * @param timeout_ms Milliseconds to wait; 0: not at all; below 0: for ever.
 * @param out Receives the delivery; end it with mmq_delivery_ack, _nack or _free. Not NULL.
 * @return As mmq_lanes_receive_timeout.
 */
mmq_status mmq_lanes_receive_backlog_timeout(struct mmq_lanes *lanes,
                                             int64_t timeout_ms,
                                             struct mmq_delivery **out);

/**
 * Returns the gap of the latest MMQ_GAP that a read through this handle returned (see
 * mmq_last_gap).
 *
 * @param lanes Not NULL.
 * @param out Receives the gap. Not NULL.
 * @return MMQ_OK, MMQ_EMPTY when there was none, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_lanes_last_gap(struct mmq_lanes *lanes, struct mmq_gap *out);

/**
 * Moves all messages that wait in the fresh lane to the backlog: the fresh lane continues with the
 * next message enqueued.
 *
 * @param lanes Not NULL.
 * @param first Receives the first sequence number moved. May be NULL.
 * @param end Receives the sequence number after the last one moved: the same as first when no
 *   message waited. May be NULL.
 * @return MMQ_OK, MMQ_NOT_FOUND once the consumer was removed, MMQ_CLOSED once the queue was
 *   closed, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_lanes_jump(struct mmq_lanes *lanes, uint64_t *first, uint64_t *end);

/**
 * Lists the stretches of the backlog that are still to be delivered, the oldest first. They do not
 * include messages in flight. There are none once the consumer was removed.
 *
 * @param lanes Not NULL.
 * @param out An array of room places, where the stretches go; at most room are written. May be
 *   NULL when room is 0.
 * @param room The length of out.
 * @param count_out Receives the number of all stretches, which may be more than room. Not NULL.
 * @return MMQ_OK, MMQ_CLOSED once the queue was closed, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_lanes_backlog(struct mmq_lanes *lanes,
                             struct mmq_stretch *out,
                             size_t room,
                             size_t *count_out);

/**
 * Returns the origin of a message that is a dead letter: another queue moved it here because a
 * consumer there rejected it or used up its delivery attempts.
 *
 * @param message Not NULL.
 * @param out Receives the origin; set out->struct_size before. Not NULL.
 * @return MMQ_OK; MMQ_NOT_FOUND when the message is no dead letter; MMQ_INVALID_ARGUMENT, also
 *   when struct_size was not set.
 */
mmq_status mmq_message_origin(const struct mmq_message *message, struct mmq_origin *out);

/**
 * Returns the origin of a delivery whose message is a dead letter (see mmq_message_origin).
 *
 * @param delivery Not NULL.
 * @param out Receives the origin; set out->struct_size before. Not NULL.
 * @return MMQ_OK; MMQ_NOT_FOUND when the message is no dead letter; MMQ_INVALID_ARGUMENT, also
 *   when struct_size was not set.
 */
mmq_status mmq_delivery_origin(const struct mmq_delivery *delivery, struct mmq_origin *out);

/**
 * Reads the figures of a queue.
 *
 * @param queue Not NULL.
 * @param out Receives the figures; set out->struct_size before. Not NULL.
 * @return MMQ_OK; MMQ_INVALID_ARGUMENT, also when struct_size was not set.
 */
mmq_status mmq_read_stats(const struct mmq_queue *queue, struct mmq_stats *out);

/**
 * Reads the figures of a consumer.
 *
 * @param consumer Not NULL.
 * @param out Receives the figures; set out->struct_size before. Not NULL.
 * @return MMQ_OK; MMQ_INVALID_ARGUMENT, also when struct_size was not set.
 */
mmq_status mmq_consumer_read_stats(const struct mmq_consumer *consumer,
                                   struct mmq_consumer_stats *out);

/**
 * Returns the queue's id: 16 random bytes, chosen when the queue was created, the same at every
 * opening. Together with a sequence number it identifies one message among those of all queues. A
 * copy of the directory has the same id.
 *
 * @param queue Not NULL.
 * @param out Receives the 16 bytes. Not NULL.
 * @return MMQ_OK, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_queue_id(const struct mmq_queue *queue, uint8_t out[16]);

/**
 * Connects to the process that has the queue in a directory open, and shares it
 * (mmq_options_set_shared). Any number of threads may use a client at the same time.
 *
 * @param dir Path of the directory: not NULL, not empty, any bytes a path may have.
 * @param out Receives the client; free it with mmq_client_free. Not NULL.
 * @return MMQ_OK; MMQ_NOT_SHARED when no process has the queue open, or its owner serves 64
 *   clients already, or not this user; MMQ_LOCKED when its owner does not share it; MMQ_NOT_FOUND,
 *   MMQ_NOT_A_QUEUE, MMQ_IO, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_connect(const char *dir, struct mmq_client **out);

/**
 * Frees a client. The connection ends once its consumers and deliveries are freed, too; deliveries
 * that were not acknowledged go back to the queue then.
 *
 * @param client From mmq_connect, or NULL.
 */
void mmq_client_free(struct mmq_client *client);

/**
 * Appends a message to the queue (see mmq_enqueue). Once the call has returned MMQ_OK, the message
 * survives the death of both processes; it survives a power cut once a flush has covered it. The
 * queue has the messages of one client in the order in which it sent them.
 *
 * @param client Not NULL.
 * @param data The bytes, which the call copies. May be NULL when len is 0: a message may be empty.
 * @param len Bytes; at most 16777216.
 * @param seq_out Receives the sequence number. May be NULL.
 * @return As mmq_enqueue of the owner; MMQ_DISCONNECTED when the owner has gone, and then
 *   mmq_last_error says whether the message may be in the queue all the same.
 */
mmq_status mmq_client_enqueue(struct mmq_client *client,
                              const void *data,
                              size_t len,
                              uint64_t *seq_out);

/**
 * Appends all messages of an array to the queue, or none (see mmq_enqueue_batch).
 *
 * @param client Not NULL.
 * @param messages The messages, whose bytes the call copies: at most 16777216 together, with 4
 *   bytes for each message. May be NULL when count is 0.
 * @param count How many.
 * @param first_seq_out Receives the sequence number of the first message (the others follow
 *   without a gap); with no messages, the number the next message will get. May be NULL.
 * @return As mmq_client_enqueue.
 */
mmq_status mmq_client_enqueue_batch(struct mmq_client *client,
                                    const struct mmq_slice *messages,
                                    size_t count,
                                    uint64_t *first_seq_out);

/**
 * Makes everything durable that was enqueued, taken or acknowledged before, by whichever process
 * (see mmq_flush).
 *
 * @param client Not NULL.
 * @return As mmq_flush of the owner; MMQ_DISCONNECTED when the owner has gone.
 */
mmq_status mmq_client_flush(struct mmq_client *client);

/**
 * Makes sure that a message is durable: flushes if it is not yet (see mmq_wait_durable).
 *
 * @param client Not NULL.
 * @param seq The message's sequence number.
 * @return As mmq_client_flush; MMQ_NOT_FOUND for a number that no message has got yet.
 */
mmq_status mmq_client_wait_durable(struct mmq_client *client, uint64_t seq);

/**
 * Reads the figures of the queue (see mmq_read_stats).
 *
 * @param client Not NULL.
 * @param out Receives the figures; set out->struct_size before. Not NULL.
 * @return MMQ_OK; MMQ_CLOSED and MMQ_DISCONNECTED when the owner has gone; MMQ_FORKED;
 *   MMQ_INVALID_ARGUMENT, also when struct_size was not set.
 */
mmq_status mmq_client_read_stats(struct mmq_client *client, struct mmq_stats *out);

/**
 * Opens the consumer of that name. The first call with a name, of the owner or of any client,
 * creates the consumer, at the oldest message in the queue (see mmq_consumer_open).
 *
 * @param client Not NULL.
 * @param name 1 to 255 bytes of UTF-8; NULL for the queue's own (default) consumer.
 * @param out Receives the handle; free it with mmq_client_consumer_free. It may outlive the
 *   client. Not NULL.
 * @return As mmq_consumer_open of the owner; MMQ_CLOSED and MMQ_DISCONNECTED when the owner has
 *   gone.
 */
mmq_status mmq_client_consumer_open(struct mmq_client *client,
                                    const char *name,
                                    struct mmq_client_consumer **out);

/**
 * Frees a handle. The consumer itself stays in the queue.
 *
 * @param consumer From mmq_client_consumer_open, or NULL.
 */
void mmq_client_consumer_free(struct mmq_client_consumer *consumer);

/**
 * Delivers the next message, for work that may fail, and waits for one (see mmq_receive_timeout).
 * The functions of mmq_delivery work on it. It goes back to the queue, and counts as an attempt,
 * when the connection ends before it was acknowledged. Other threads may use the client meanwhile.
 *
 * @param consumer Not NULL.
 * @param timeout_ms Milliseconds to wait; 0: not at all; below 0: for ever. Only a message or the
 *   owner's end ends such a wait.
 * @param out Receives the delivery; end it with mmq_delivery_ack, _nack or _free. Not NULL.
 * @return MMQ_OK, MMQ_TIMED_OUT, MMQ_GAP (see mmq_client_last_gap); MMQ_NOT_FOUND once the
 *   consumer was removed; MMQ_CLOSED and MMQ_DISCONNECTED when the owner has gone: no message is
 *   lost; as mmq_receive of the owner.
 */
mmq_status mmq_client_receive(struct mmq_client_consumer *consumer,
                              int64_t timeout_ms,
                              struct mmq_delivery **out);

/**
 * Delivers up to max messages in one step, at most 64, without waiting for more to arrive (see
 * mmq_receive_batch). mmq_delivery_ack_batch acknowledges them in one.
 *
 * @param consumer Not NULL.
 * @param out An array of max elements, which receives the deliveries. May be NULL when max is 0.
 * @param max The most messages to deliver.
 * @param count_out Receives the number of deliveries. Not NULL.
 * @return As mmq_client_receive, but MMQ_EMPTY where that returns MMQ_TIMED_OUT; MMQ_OK means at
 *   least one delivery, unless max is 0. The next call reports a gap or an error behind the first
 *   message.
 */
mmq_status mmq_client_receive_batch(struct mmq_client_consumer *consumer,
                                    struct mmq_delivery **out,
                                    size_t max,
                                    size_t *count_out);

/**
 * Takes the next message, and waits for one (see mmq_dequeue_timeout). A message that the owner
 * had sent is lost with the connection; mmq_client_receive loses none.
 *
 * @param consumer Not NULL.
 * @param timeout_ms Milliseconds to wait; 0: not at all; below 0: for ever. Only a message or the
 *   owner's end ends such a wait.
 * @param out Receives the message; free it with mmq_message_free. Not NULL.
 * @return As mmq_client_receive.
 */
mmq_status mmq_client_dequeue(struct mmq_client_consumer *consumer,
                              int64_t timeout_ms,
                              struct mmq_message **out);

/**
 * Returns the next message, which stays in the queue (see mmq_peek).
 *
 * @param consumer Not NULL.
 * @param out Receives the message; free it with mmq_message_free. Not NULL.
 * @return As mmq_client_receive, but MMQ_EMPTY where that returns MMQ_TIMED_OUT.
 */
mmq_status mmq_client_peek(struct mmq_client_consumer *consumer, struct mmq_message **out);

/**
 * Moves the consumer to a message (see mmq_consumer_seek).
 *
 * @param consumer Not NULL.
 * @param seq The sequence number of the next message.
 * @return As mmq_consumer_seek of the owner; MMQ_CLOSED and MMQ_DISCONNECTED when the owner has
 *   gone.
 */
mmq_status mmq_client_seek(struct mmq_client_consumer *consumer, uint64_t seq);

/**
 * Returns the gap of the latest MMQ_GAP that a read through this handle returned (see
 * mmq_last_gap).
 *
 * @param consumer Not NULL.
 * @param out Receives the gap. Not NULL.
 * @return MMQ_OK, MMQ_EMPTY when there was none, MMQ_FORKED, MMQ_INVALID_ARGUMENT.
 */
mmq_status mmq_client_last_gap(struct mmq_client_consumer *consumer, struct mmq_gap *out);

/**
 * Inspects the queue in a directory without opening it: takes no lock, maps nothing and writes
 * nothing. Another process may use the queue meanwhile, but need not. The owner is read from
 * /proc/locks; on other systems than Linux a queue in use looks like one whose process died.
 *
 * @param dir The queue's directory: a path that ends with a zero byte. Not NULL.
 * @param out Receives the figures; set out->struct_size before. Not NULL.
 * @return MMQ_OK; MMQ_NOT_FOUND when there is no queue; MMQ_NOT_A_QUEUE; MMQ_UNSUPPORTED_FORMAT;
 *   MMQ_IO, also when another process changes the queue too quickly to read it;
 *   MMQ_INVALID_ARGUMENT, also when struct_size was not set.
 */
mmq_status mmq_inspect(const char *dir, struct mmq_inspection *out);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* MMQ_H */
