/* Prints what a compiled program relies on. tests/c/abi.txt holds what it was. */
#include "check.h"

#define SIZE(type) printf("size %s %zu\n", #type, sizeof(type))
#define FIELD(type, field) printf("field %s.%s %zu %zu\n", #type, #field, offsetof(type, field), sizeof(((type *)0)->field))
#define VALUE(name) printf("value %s %d\n", #name, (int)name)

int main(void) {
  char version[64];
  snprintf(version, sizeof version, "%d.%d.%d", MMQ_VERSION_MAJOR, MMQ_VERSION_MINOR, MMQ_VERSION_PATCH);
  CHECK(strcmp(version, mmq_version()) == 0);
  SIZE(mmq_status);
  SIZE(mmq_on_full);
  SIZE(mmq_slice);
  FIELD(mmq_slice, data);
  FIELD(mmq_slice, len);
  SIZE(mmq_gap);
  FIELD(mmq_gap, first);
  FIELD(mmq_gap, last);
  FIELD(mmq_gap, cause);
  SIZE(mmq_inspection);
  FIELD(mmq_inspection, struct_size);
  FIELD(mmq_inspection, state);
  FIELD(mmq_inspection, owner_pid);
  FIELD(mmq_inspection, next_seq);
  FIELD(mmq_inspection, oldest_seq);
  FIELD(mmq_inspection, durable_seq);
  FIELD(mmq_inspection, messages);
  FIELD(mmq_inspection, bytes);
  FIELD(mmq_inspection, disk_bytes);
  FIELD(mmq_inspection, segments);
  FIELD(mmq_inspection, spare_segments);
  FIELD(mmq_inspection, consumers);
  FIELD(mmq_inspection, poisoned);
  FIELD(mmq_inspection, queue_id);
  SIZE(mmq_stats);
  FIELD(mmq_stats, struct_size);
  FIELD(mmq_stats, messages);
  FIELD(mmq_stats, bytes);
  FIELD(mmq_stats, segments);
  FIELD(mmq_stats, spare_segments);
  FIELD(mmq_stats, mapped_arenas);
  FIELD(mmq_stats, mapped_bytes);
  FIELD(mmq_stats, disk_bytes);
  FIELD(mmq_stats, next_seq);
  FIELD(mmq_stats, oldest_seq);
  FIELD(mmq_stats, durable_seq);
  FIELD(mmq_stats, enqueued);
  FIELD(mmq_stats, dequeued);
  FIELD(mmq_stats, consumers);
  FIELD(mmq_stats, gaps);
  FIELD(mmq_stats, lost_messages);
  FIELD(mmq_stats, lost_damaged);
  FIELD(mmq_stats, lost_unflushed);
  FIELD(mmq_stats, lost_dropped);
  FIELD(mmq_stats, lost_expired);
  FIELD(mmq_stats, flushes);
  FIELD(mmq_stats, flush_ns);
  FIELD(mmq_stats, poisoned);
  FIELD(mmq_stats, oldest_age_ms);
  FIELD(mmq_stats, reserved_numbers);
  FIELD(mmq_stats, longest_flush_ns);
  FIELD(mmq_stats, refused);
  FIELD(mmq_stats, wait_ns);
  SIZE(mmq_consumer_stats);
  FIELD(mmq_consumer_stats, struct_size);
  FIELD(mmq_consumer_stats, next_seq);
  FIELD(mmq_consumer_stats, messages);
  FIELD(mmq_consumer_stats, bytes);
  FIELD(mmq_consumer_stats, in_flight);
  FIELD(mmq_consumer_stats, oldest_age_ms);
  VALUE(MMQ_OK);
  VALUE(MMQ_EMPTY);
  VALUE(MMQ_BUFFER_TOO_SMALL);
  VALUE(MMQ_TIMED_OUT);
  VALUE(MMQ_GAP);
  VALUE(MMQ_INVALID_ARGUMENT);
  VALUE(MMQ_INVALID_OPTION);
  VALUE(MMQ_MESSAGE_TOO_LARGE);
  VALUE(MMQ_FULL);
  VALUE(MMQ_LOCKED);
  VALUE(MMQ_NOT_FOUND);
  VALUE(MMQ_UNSUPPORTED_FORMAT);
  VALUE(MMQ_IO);
  VALUE(MMQ_POISONED);
  VALUE(MMQ_CLOSED);
  VALUE(MMQ_FORKED);
  VALUE(MMQ_NOT_A_QUEUE);
  VALUE(MMQ_PANIC);
  VALUE(MMQ_REJECT);
  VALUE(MMQ_WAIT);
  VALUE(MMQ_DROP_OLDEST);
  VALUE(MMQ_GAP_DAMAGED);
  VALUE(MMQ_GAP_UNFLUSHED);
  VALUE(MMQ_GAP_DROPPED);
  VALUE(MMQ_GAP_EXPIRED);
  VALUE(MMQ_GAP_RESERVED);
  return 0;
}
